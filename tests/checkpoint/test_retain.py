"""Which checkpoint a resume takes and which a prune deletes: only verified ones count."""

import shutil
from pathlib import Path

import pytest

from checkpoint_cases import flip, make_run, save_small
from dlrmx.checkpoint import retain
from dlrmx.checkpoint.retain import list_checkpoints, newest_good, prune, set_aside
from dlrmx.checkpoint.verify import problems
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import RunPaths

FILE = "rank-0000.safetensors"
COMPLETE = {"step-00000100", "step-00000200", "step-00000300", "step-00000400", "step-00000500"}


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    """A run with checkpoints 100 to 500; the best NE and the best AUC are at 200."""
    run = make_run(tmp_path)
    for step, ne in ((100, 0.9), (200, 0.7), (300, 0.8), (400, 0.8), (500, 0.85)):
        save_small(run, step, ne=ne)
    return run


def names(run: RunPaths) -> set[str]:
    return {path.name for path in run.checkpoints.iterdir()}


def steps(paths: tuple[Path, ...]) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in paths]


def damage(run: RunPaths, step: int) -> None:
    flip(run.checkpoint(step) / FILE, -1)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checkpoints whose bytes were read, in order."""
    seen: list[str] = []

    def counted(directory: Path) -> list[str]:
        seen.append(directory.name)
        return problems(directory)

    monkeypatch.setattr(retain, "problems", counted)
    return seen


# ------------------------------------------------------------------------------------ list


def test_list(run: RunPaths) -> None:
    infos = list_checkpoints(run)
    assert [info.step for info in infos] == [100, 200, 300, 400, 500]
    assert all(info.complete and info.kind == "checkpoint" and info.attempt == 1 for info in infos)
    assert infos[1].metrics == {"validation.ne": 0.7, "validation.auc": 0.7}
    assert infos[0].bytes == sum(path.stat().st_size for path in infos[0].path.iterdir())


def test_list_before_the_first(tmp_path: Path) -> None:
    assert list_checkpoints(make_run(tmp_path)) == []


def test_list_names_damage_leftovers_and_those_set_aside(run: RunPaths) -> None:
    (run.checkpoint(300) / FILE).unlink()
    (run.checkpoint(400) / "manifest.json").unlink()
    shutil.copytree(run.checkpoint(200), run.partial_checkpoint(600, 1))
    set_aside(run, 450, 2)
    (run.checkpoints / "lost+found").mkdir()
    told = {info.path.name: (info.kind, info.problems) for info in list_checkpoints(run)}
    assert told == {
        "step-00000100": ("checkpoint", ()),
        "step-00000200": ("checkpoint", ()),
        "step-00000300": ("checkpoint", (f"{FILE}: missing",)),
        "step-00000400": ("checkpoint", ("foreign: no manifest.json",)),
        "step-00000500.aside-0002": ("aside", ()),
        ".step-00000600.attempt-0001": ("leftover", ("left over: was never completed",)),
    }


# ------------------------------------------------------------------------------------ newest good


def test_newest_good(run: RunPaths) -> None:
    assert newest_good(run) == (run.checkpoint(500), [])


def test_a_run_that_saved_and_lost_all_does_not_start_over(run: RunPaths) -> None:
    append_event(run.attempt(1), "saved", step=500, bytes=1, seconds=0.1)
    shutil.rmtree(run.checkpoints)
    path, reasons = newest_good(run)
    assert path is None
    assert reasons == [f"{run.checkpoints}: the run saved step 500, and nothing is there"]


def test_newest_good_skips_damaged_ones_and_says_why(run: RunPaths) -> None:
    damage(run, 500)
    (run.checkpoint(400) / "manifest.json").unlink()
    path, reasons = newest_good(run)
    assert path == run.checkpoint(300)
    assert reasons == [
        f"step-00000500: {FILE}: table/user/weight rows [6, 10): the checksum does not match",
        "step-00000400: foreign: no manifest.json",
    ]


def test_none_good_gives_a_reason_for_each(run: RunPaths) -> None:
    for step in (100, 200, 300, 400, 500):
        (run.checkpoint(step) / FILE).write_bytes(b"")
    path, reasons = newest_good(run)
    assert path is None
    assert [reason.split(":")[0] for reason in reasons] == [f"step-00000{step}00" for step in (5, 4, 3, 2, 1)]


def test_a_first_save_that_was_killed_is_no_reason_not_to_start(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.partial_checkpoint(100, 1).mkdir(parents=True)
    assert newest_good(run) == (None, [])


def test_a_replaced_one_counts_until_the_new_one_is_there(run: RunPaths) -> None:
    replaced = run.replaced_checkpoint(500, 2)
    run.checkpoint(500).rename(replaced)
    assert newest_good(run) == (replaced, [])
    make_attempts(run, 3)
    assert steps_left_by_prune(run, keep=1) == {replaced.name}
    shutil.copytree(replaced, run.checkpoint(500))
    assert newest_good(run) == (run.checkpoint(500), [])
    assert steps_left_by_prune(run, keep=1) == {"step-00000500"}


def make_attempts(run: RunPaths, newest: int) -> None:
    for number in range(1, newest + 1):
        run.attempt(number).dir.mkdir(exist_ok=True)


def steps_left_by_prune(run: RunPaths, keep: int) -> set[str]:
    prune(run, keep=keep)
    return names(run)


# ------------------------------------------------------------------------------------ prune


def test_keeps_the_newest(run: RunPaths) -> None:
    pruned = prune(run, keep=2)
    assert names(run) == {"step-00000400", "step-00000500"}
    assert steps(pruned.kept) == [500, 400]
    assert sorted(steps(pruned.removed)) == [100, 200, 300]
    assert pruned.failed == ()


@pytest.mark.parametrize(
    ("metric", "best"), [("validation.ne", 200), ("validation.loss", None), ("validation.auc", 100)]
)
def test_keeps_the_best(run: RunPaths, metric: str, best: int | None) -> None:
    prune(run, keep=1, best_metric=metric)
    assert names(run) == {"step-00000500"} | ({f"step-{best:08d}"} if best else set())


def test_of_equally_good_ones_the_newest_is_best(run: RunPaths) -> None:
    shutil.rmtree(run.checkpoint(200))
    prune(run, keep=1, best_metric="validation.ne")  # 300 and 400 have 0.8
    assert names(run) == {"step-00000400", "step-00000500"}


def test_damaged_ones_do_not_count(run: RunPaths) -> None:
    """Keeping the newest two, damaged as they are, would leave nothing to resume from."""
    damage(run, 400)
    damage(run, 300)
    prune(run, keep=2)
    assert names(run) == {"step-00000200", "step-00000500"}
    assert newest_good(run)[0] == run.checkpoint(500)


def test_a_damaged_best_is_not_the_best(run: RunPaths) -> None:
    damage(run, 200)
    prune(run, keep=1, best_metric="validation.ne")
    assert names(run) == {"step-00000400", "step-00000500"}


def test_the_last_good_one_is_never_deleted(run: RunPaths) -> None:
    for step in (200, 300, 400, 500):
        damage(run, step)
    prune(run, keep=1)
    assert names(run) == COMPLETE  # the damaged ones are newer: they go once a good newer one stays
    assert newest_good(run)[0] == run.checkpoint(100)
    save_small(run, 600)
    prune(run, keep=1)
    assert names(run) == {"step-00000600"}


def test_nothing_goes_while_none_is_good(run: RunPaths) -> None:
    for step in (100, 200, 300, 400, 500):
        damage(run, step)
    assert prune(run, keep=1).removed == ()
    assert names(run) == COMPLETE


def test_what_is_not_ours_stays_and_is_named(run: RunPaths) -> None:
    (run.checkpoint(100) / "manifest.json").write_text('{"architectures": []}')
    (run.checkpoints / "my-notes").mkdir()
    pruned = prune(run, keep=1)
    assert names(run) == {"step-00000100", "step-00000500", "my-notes"}
    assert pruned.failed[0].startswith("step-00000100: left alone: manifest.json: not a manifest of dlrmx")


def test_set_aside_ones_stay(run: RunPaths) -> None:
    set_aside(run, 300, 2)
    prune(run, keep=1)
    assert names(run) == {"step-00000300", "step-00000400.aside-0002", "step-00000500.aside-0002"}


def test_only_the_newest_attempt_deletes(run: RunPaths) -> None:
    make_attempts(run, 2)
    assert prune(run, keep=1, attempt=1).removed == ()
    assert names(run) == COMPLETE
    prune(run, keep=1, attempt=2)
    assert names(run) == {"step-00000500"}


def test_leftovers_go_when_their_attempt_is_past(run: RunPaths) -> None:
    make_attempts(run, 2)
    for attempt in (1, 2):
        run.partial_checkpoint(600, attempt).mkdir()
        run.removed_checkpoint(50, attempt).mkdir()
        shutil.copytree(run.checkpoint(500), run.replaced_checkpoint(500, attempt))
    prune(run, keep=9, attempt=2)
    of_attempt_2 = {".step-00000600.attempt-0002", ".step-00000500.attempt-0002.replaced"}
    assert names(run) == COMPLETE | of_attempt_2


def test_a_kill_during_a_deletion_leaves_no_half_checkpoint(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "rmtree", raise_interrupt)
    with pytest.raises(KeyboardInterrupt):
        prune(run, keep=1)
    monkeypatch.undo()
    assert not any(info.problems for info in list_checkpoints(run) if info.kind == "checkpoint")
    prune(run, keep=1)
    assert names(run) == {"step-00000500"}


def raise_interrupt(path: Path, ignore_errors: bool = False) -> None:
    if path.exists():
        raise KeyboardInterrupt


def test_a_deletion_that_fails_is_told_and_the_others_go_on(run: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def refusing(self: Path, target: Path) -> Path:
        if self == run.checkpoint(200):
            raise PermissionError(13, "Permission denied", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refusing)
    pruned = prune(run, keep=1)
    assert pruned.failed == ("step-00000200: Permission denied",)
    assert names(run) == {"step-00000200", "step-00000500"}


# ------------------------------------------------------------------------------------ what a prune reads


def test_what_this_process_saved_is_not_read_again(run: RunPaths, reads: list[str]) -> None:
    saved = [run.checkpoint(step) for step in (300, 400, 500)]
    prune(run, keep=3, known_good=saved)
    assert reads == []


def test_each_old_one_is_read_once(run: RunPaths, reads: list[str]) -> None:
    good = prune(run, keep=3, known_good=[run.checkpoint(500)]).good
    assert reads == ["step-00000400", "step-00000300"]
    assert good == {run.checkpoint(step) for step in (300, 400, 500)}
    good = prune(run, keep=3, known_good=good | {save_small(run, 600)}).good
    assert reads == ["step-00000400", "step-00000300"]
    assert good == {run.checkpoint(step) for step in (400, 500, 600)}


def test_nothing_is_read_while_there_is_nothing_to_delete(run: RunPaths, reads: list[str]) -> None:
    prune(run, keep=5)
    assert reads == []


def test_a_known_one_that_shrank_is_not_good_any_more(run: RunPaths) -> None:
    (run.checkpoint(500) / FILE).write_bytes(b"")
    pruned = prune(run, keep=1, known_good=[run.checkpoint(500)])
    assert steps(pruned.kept) == [400]
    assert run.checkpoint(500) not in pruned.good


# ------------------------------------------------------------------------------------ set aside


def test_set_aside(run: RunPaths) -> None:
    damage(run, 500)
    moved = set_aside(run, 300, 2)
    assert [path.name for path in moved] == ["step-00000400.aside-0002", "step-00000500.aside-0002"]
    assert newest_good(run) == (run.checkpoint(300), [])
    assert problems(moved[0]) == []
    moved[0].rename(run.checkpoint(400))
    assert newest_good(run) == (run.checkpoint(400), [])


def test_set_aside_nothing(run: RunPaths) -> None:
    assert set_aside(run, 500, 2) == []
    assert names(run) == COMPLETE
