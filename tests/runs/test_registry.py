import os
from pathlib import Path

import pytest

from dlrmx.errors import InputError, UnknownRun
from dlrmx.recipe.profiles import read_profile
from dlrmx.runs.claim import create_run
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.registry import all_runs, find_run, register, registry_dir, seen_root


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make(root: Path, name: str) -> RunPaths:
    run = create_run(root, "ctr", name, "f")
    register(run)
    return run


def test_found_by_name_prefix_and_path_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(tmp_path / "roots" / "a", "clicks-1")
    make(tmp_path / "roots" / "b", "sales-1")
    monkeypatch.chdir(tmp_path)
    for text in ("clicks-1", "cl", str(run.dir), "roots/a/clicks-1", "./roots/b/../a/clicks-1/"):
        assert find_run(text) == run
    monkeypatch.chdir(run.dir.parent)
    assert find_run("clicks-1") == run
    monkeypatch.chdir(run.dir)
    assert find_run(".") == run


def test_the_newest_is_the_last_started_or_resumed(tmp_path: Path) -> None:
    first, second = make(tmp_path, "a"), make(tmp_path, "b")
    assert find_run(None) == second
    register(first)
    assert find_run(None) == first
    assert all_runs() == [first, second]


def test_an_exact_name_wins_over_longer_ones(tmp_path: Path) -> None:
    run = make(tmp_path, "ctr-1")
    make(tmp_path, "ctr-10")
    assert find_run("ctr-1") == run


def test_several_that_fit_are_listed(tmp_path: Path) -> None:
    for n in range(12):
        make(tmp_path, f"ctr-{n}")
    with pytest.raises(InputError, match=r"12 runs fit 'ctr'.*(?s:.)*/ctr-11\n(?s:.)*and 2 more"):
        find_run("ctr")


def test_one_name_in_two_roots_needs_a_path(tmp_path: Path) -> None:
    one, two = make(tmp_path / "a", "ctr-1"), make(tmp_path / "b", "ctr-1")
    with pytest.raises(InputError, match=f"{two.dir}\n    {one.dir}"):
        find_run("ctr-1")


def test_an_unknown_name_gets_its_near_misses(tmp_path: Path) -> None:
    with pytest.raises(UnknownRun, match="no runs yet"):
        find_run("anything")
    make(tmp_path, "clicks-1")
    with pytest.raises(UnknownRun, match="did you mean clicks-1"):
        find_run("click-1")
    with pytest.raises(UnknownRun, match="dlrmx runs"):
        find_run("zzz")
    with pytest.raises(UnknownRun, match="is not a run"):
        find_run(str(tmp_path))


def test_the_registry_is_only_a_cache(tmp_path: Path) -> None:
    kept, gone = make(tmp_path / "root", "kept"), make(tmp_path / "root", "gone")
    unregistered = create_run(tmp_path / "root", "ctr", "quiet", "f")
    gone.run.unlink()
    (registry_dir() / "torn.json").write_text('{"dir": "/no')
    (registry_dir() / "foreign.json").write_text('{"dir": 3, "time": "x"}')
    assert all_runs() == [kept]
    assert set(all_runs(tmp_path / "root")) == {kept, unregistered}
    assert find_run("quiet", tmp_path / "root") == unregistered


def test_a_registry_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    run = make(tmp_path / "root", "a")
    assert all_runs() == []
    assert find_run("a", tmp_path / "root") == run


def test_a_hundred_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Processes that all wait at one gate; each writes an entry of its own, and one that all of them write."""
    runs = [create_run(tmp_path, "ctr", None, "f") for _ in range(100)]
    gate, opener = os.pipe()
    writers = [_writer_at(gate, opener, run, runs[0]) for run in runs]
    os.close(opener)
    assert {os.waitpid(pid, 0)[1] for pid in writers} == {0}
    os.close(gate)
    assert set(all_runs()) == set(runs)
    assert len(list(registry_dir().iterdir())) == 100  # none of the files aside is left


def _writer_at(gate: int, opener: int, *runs: RunPaths) -> int:
    """A process that registers runs once the gate opens; its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(opener)
            os.read(gate, 1)
            for run in runs:
                register(run)
            code = 0
        finally:
            os._exit(code)
    return pid


def test_runs_that_only_pods_see_have_copies_by_cluster(tmp_path: Path) -> None:
    pods = {"scheduler": "kubernetes", "image": "x", "root": "/runs/ann"}
    assert seen_root(read_profile({"root": "/scratch"})) == Path("/scratch")
    copies = seen_root(read_profile(pods))
    assert copies.parent == tmp_path / "state" / "dlrmx" / "copies"
    assert seen_root(read_profile({**pods, "namespace": "ads"})) != copies
    assert seen_root(read_profile({**pods, "root_here": "/mnt/runs"})) == Path("/mnt/runs")


def test_a_run_that_cannot_be_looked_at_hides_no_other(tmp_path: Path) -> None:
    """No rights to its folder, a disk that is away: the system refuses, as it does a name that is too long."""
    run = make(tmp_path, "seen")
    (registry_dir() / "unseen.json").write_text(f'{{"dir": "/{"x" * 300}", "time": 1e10}}')
    assert all_runs() == [run]
    assert find_run(None) == run
