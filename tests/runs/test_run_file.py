from pathlib import Path
from typing import Any

import pytest

from dlrmx.errors import UnknownRun
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import read_run, update_run, write_run

FIELDS: dict[str, Any] = {"version": 1, "recipe": "tiny", "fingerprint": "f" * 12, "created": 1.0, "state": "created"}


def test_fields_change_and_the_others_stay(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    write_run(run, {**FIELDS, "name": "a"})
    update_run(run, state="running", attempt=2)
    assert read_run(run) == {**FIELDS, "state": "running", "name": "a", "attempt": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunPaths(tmp_path)
    write_run(run, FIELDS)

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="Input/output"):
        update_run(run, state="running")
    assert read_run(run)["state"] == "created"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_on_a_full_disk_the_end_is_written_into_the_blocks_that_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunPaths(tmp_path)
    write_run(run, {**FIELDS, "reason": "x" * 100})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    for reason in ("", "y" * 1000):  # shorter, then longer than what was there
        update_run(run, state="failed", reason=reason)
        assert read_run(run) == {**FIELDS, "state": "failed", "reason": reason}
    with pytest.raises(OSError, match="No space"):
        update_run(run, reason="z" * 4096)
    assert read_run(run)["reason"] == "y" * 1000


@pytest.mark.parametrize("text", [None, "", "[]", '{"version": 2}', '{"version": 1'])
def test_what_is_no_run_file_is_no_run(tmp_path: Path, text: str | None) -> None:
    run = RunPaths(tmp_path)
    if text is not None:
        run.run.write_text(text)
    with pytest.raises(UnknownRun, match="no run at"):
        read_run(run)


@pytest.mark.parametrize(
    "change",
    [{"state": "weird"}, {"state": None}, {"created": "x"}, {"created": 1e999}, {"recipe": 3}, {"exit_code": "a"}],
)
def test_a_damaged_run_file_is_no_run(change: dict[str, Any], tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    write_run(run, {**FIELDS, **change})
    with pytest.raises(UnknownRun, match=f"damaged .{next(iter(change))}"):
        read_run(run)
