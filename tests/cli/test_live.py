"""What is shown of a run while it is followed."""

import pytest
from rich.console import Console

from dlrmx_cli.live import PlainView, TerminalView, entry_line, render, render_waiting
from dlrmx_cli.progress import Progress
from scripted import EVALUATION, STEP

PREPARING = {"event": "progress", "phase": "prepare", "what": "rows", "total": 1000}


def rendered(progress: Progress) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(render(progress))
    return capture.get()


def test_the_display_shows_phase_bar_quality_and_cost() -> None:
    progress = Progress(1, phase="train", step=10, total_steps=20, record=STEP, ms_per_step=1000.0)
    text = rendered(progress)
    for words in (
        "prepare", "plan", "start", "train", "evaluate", "save", "step 10 of 20", "10 s left", "loss 0.5000",
        "NE 0.9000", "AUC 0.7000", "12.3 K samples/s", "lr 0.1 dense, 0.1 sparse",
        "exchange 9 KiB a step and rank: dense 4 KiB, vectors 2 KiB, gradients 2 KiB",
        "memory 3 GiB a rank",
    ):  # fmt: skip
        assert words in text, words


def test_clamped_numbers_are_shown_where_there_are_some() -> None:
    clamped = {**STEP, "clamped": {"vectors": 0, "gradients": 1234, "dense": 5}}
    assert "ids 1 KiB; clamped gradients 1,234, dense 5" in rendered(Progress(1, record=clamped))
    assert "  clamped gradients 1,234, dense 5" in entry_line(clamped, Progress(1))
    none = {**STEP, "clamped": {"vectors": 0, "gradients": 0, "dense": 0}}
    assert "clamped" not in rendered(Progress(1, record=none)) + entry_line(none, Progress(1))


def test_the_display_does_not_obey_what_a_record_says() -> None:
    text = rendered(Progress(1, record={**STEP, "bytes": {"de\x1b[2Jnse\u202e": 4096}}, doing="ro\x9bws"))
    assert "\x1b" not in text and "\u202e" not in text and "\x9b" not in text
    assert "de\\x1b[2Jnse\\u202e 4 KiB" in text


def test_the_display_shows_how_long_each_phase_takes() -> None:
    progress = Progress(1, phase="start", since=100.0, spent={"prepare": 75.0, "plan": 0.2})
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(render(progress, now=109.4))
    assert " prepare 1 min 15 s  plan  start 9 s  train  evaluate  save " in capture.get()


def test_the_display_before_training_has_no_bar() -> None:
    text = rendered(Progress(1, phase="prepare", doing="rows: 5 of 10 rows"))
    assert "rows: 5 of 10 rows" in text
    assert "step" not in text


def test_a_run_that_waits_says_so_and_shows_no_step_of_before(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        progress = Progress(1, phase="train", step=220, total_steps=20_000, record=STEP, stopping=True)
        console.print(render_waiting(progress, "job 20: PENDING: waits for Resources"))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert lines == [" waiting   job 20: PENDING: waits for Resources", "  so far: step 220 of 20,000"]
    view = PlainView()
    for text in ("job 20: PENDING", "job 20: PENDING", "", "job 20: PENDING"):
        view.wait(text)
    assert capsys.readouterr().err.splitlines() == ["job 20: PENDING", "job 20: PENDING"]


def test_failed_saves_and_a_stop_stay_visible() -> None:
    text = rendered(Progress(1, phase="train", saves_failed=2, stopping=True))
    assert "2 saves failed" in text
    assert "stopping" in text


def test_undefined_metrics_say_so() -> None:
    assert "AUC undefined" in rendered(Progress(1, record={**STEP, "auc": None}))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (STEP, ["step 10/20", "loss 0.5000", "NE 0.9000", "12.3 K samples/s", "exchange 9 KiB/step", "3 GiB"]),
        (EVALUATION, ["evaluate test at step 20", "NE 0.7531 (planted optimum 0.7421)", "AUC 0.8125", "100 rows"]),
        ({**EVALUATION, "optimum_ne": None, "auc": None}, ["NE 0.7531  AUC undefined"]),
        ({"event": "saved", "step": 1000, "bytes": 3 * 2**20, "seconds": 0.5}, ["saved step 1,000 (3 MiB in 0.5 s)"]),
        ({"event": "save_failed", "step": 7, "reason": "disk full"}, ["save of step 7 failed: disk full"]),
        ({"event": "stop_requested", "by": "SIGTERM"}, ["stop requested"]),
        (
            {"event": "failed", "rank": 3, "step": 9, "message": "NaN\n    hint", "primary": True},
            ["rank 3 failed at step 9: NaN"],
        ),
        (
            {"event": "failed", "rank": None, "step": None, "message": "no data", "primary": True},
            ["the node process failed: no data"],
        ),
    ],
)
def test_what_is_worth_a_line(entry: dict[str, object], words: list[str]) -> None:
    line = entry_line(entry, Progress(1, step=10, total_steps=20))
    assert "\n" not in line
    for word in words:
        assert word in line


def test_a_record_that_was_edited_by_hand_is_shown_as_far_as_it_goes() -> None:
    bare = {"kind": "step", "step": 10}
    assert "loss undefined" in entry_line(bare, Progress(1))
    assert "loss undefined" in rendered(Progress(1, phase="train", record=bare))
    evaluation = {"kind": "evaluation", "step": 10, "split": "test", "rows": 3}
    assert "AUC undefined  over 3 rows" in entry_line(evaluation, Progress(1))


def test_what_failed_only_because_another_rank_did_is_not_shown() -> None:
    entry = {"event": "failed", "rank": 0, "step": 9, "message": "connection lost", "primary": False}
    assert entry_line(entry, Progress(1)) == ""


def test_what_fails_on_all_ranks_alike_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    for rank, message in ((3, "disk full"), (0, "disk full"), (1, "NaN")):
        view.show({"event": "failed", "rank": rank, "step": 9, "message": message, "primary": True})
    assert capsys.readouterr().err.splitlines() == [
        "rank 3 failed at step 9: disk full",
        "rank 1 failed at step 9: NaN",
    ]


def test_an_attempt_says_where_it_goes_on() -> None:
    assert entry_line({"event": "begin", "step": 1200, "total_steps": 2000}, Progress(2)) == "going on from step 1,200"
    assert entry_line({"event": "begin", "step": 0, "total_steps": 2000}, Progress(1)) == ""


def test_the_display_ends_with_its_shortest_line() -> None:
    """The terminal writes ^C behind the last line: one that fills the terminal would wrap, and tear the display."""
    lines = rendered(Progress(1, phase="train", step=10, total_steps=20, record=STEP, ms_per_step=1.0)).splitlines()
    assert "step 10 of 20" in lines[-1]
    assert len(lines[-1].rstrip()) < 80


def test_plain_lines_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    for done in range(0, 1001):
        view.show({**PREPARING, "done": done})
    view.show({"event": "phase", "phase": "train"})
    view.show({"event": "begin", "step": 0, "total_steps": 20})
    view.show({"event": "worker_started", "rank": 0})
    view.show(STEP)
    view.begin(2)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len([line for line in lines if line.startswith("rows: ")]) == 11  # one per tenth
    assert lines[11:] == ["train", lines[12], "attempt 2"]
    assert lines[12].startswith("step 10/20")
    assert captured.out == ""


def test_the_terminal_display_goes_to_stderr_and_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = TerminalView()
    view.begin(1)
    view.show({"event": "begin", "step": 0, "total_steps": 20})
    view.show(STEP)
    view.show(EVALUATION)
    view.begin(2)
    view.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "evaluate test at step 20" in captured.err
    assert "attempt 2" in captured.err
