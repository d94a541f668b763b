"""checkpoints list, show, verify, prune."""

import json

import pytest

from dlrmx.runs.claim import hold
from scripted import Dlrmx, MakeRun
from small_checkpoint import damage, save_checkpoint


def test_checkpoints_verbs(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("stopped")
    paths = [save_checkpoint(run, step) for step in (10, 20, 30)]
    listed = json.loads(dlrmx("checkpoints", "list", "--json").stdout)["checkpoints"]
    assert [(entry["step"], entry["kind"], entry["problems"]) for entry in listed] == [
        (step, "checkpoint", []) for step in (10, 20, 30)
    ]
    shown = json.loads(dlrmx("checkpoints", "show", run.name, "--json").stdout)
    assert (shown["path"], shown["tensors"][0]["name"]) == (str(paths[2]), "dense/bias")
    assert dlrmx("checkpoints", "show", paths[0]).stdout.splitlines()[1].split() == ["step", "10"]
    assert dlrmx("checkpoints", "verify", run.name).stdout.splitlines() == [f"good  {path}" for path in paths]
    damage(paths[2])
    bad = dlrmx("checkpoints", "verify", paths[2])
    assert bad.exit_code == 2
    assert "rank-0000.safetensors" in bad.stdout
    pruned = json.loads(dlrmx("checkpoints", "prune", "--keep", "1", "--json").stdout)
    assert pruned["kept"] == [str(paths[1])]  # the newest good one; the damaged one does not count
    assert pruned["removed"] == [str(paths[0])]
    with hold(run):
        assert dlrmx("checkpoints", "prune").exit_code == 2


def test_a_run_without_checkpoints_is_told_by_name(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    done = dlrmx("checkpoints", "list", make_run().name)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "clicks-1 has no checkpoints" in done.stderr
    assert json.loads(dlrmx("checkpoints", "list", "--json").stdout)["checkpoints"] == []


def test_the_list_fits_a_terminal_but_for_paths(
    dlrmx: Dlrmx, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("stopped")
    save_checkpoint(run, 10)
    piped = dlrmx("checkpoints", "list", run.name).stdout
    assert len(piped.splitlines()) == 2
    monkeypatch.setattr("dlrmx_cli.checkpoints.screen_width", lambda: 60)
    shown = dlrmx("checkpoints", "list", run.name).stdout
    assert max(len(line) for line in shown.splitlines() if str(run.dir) not in line) <= 60
    assert set(piped.split()) <= set(shown.split())
