"""Folding what a run writes into what is known of it."""

from functools import reduce

from dlrmx_cli.progress import Progress, fold, phases_text
from scripted import EVALUATION, STEP

BEGIN = {"event": "begin", "step": 5, "epoch": 0, "row": 640, "total_steps": 25}


def folded(*entries: dict[str, object]) -> Progress:
    return reduce(fold, entries, Progress(attempt=1))


def test_training_begins_where_the_attempt_says() -> None:
    progress = folded({"event": "phase", "phase": "train"}, BEGIN)
    assert (progress.phase, progress.step, progress.total_steps) == ("train", 5, 25)
    assert progress.seconds_left is None  # no pace is known yet


def test_the_time_left_follows_the_pace_of_the_records() -> None:
    progress = folded(BEGIN, {**STEP, "step": 15, "step_ms": 200.0})
    assert progress.seconds_left == 10 * 0.2
    slower = fold(progress, {**STEP, "step": 20, "step_ms": 700.0})
    assert slower.seconds_left is not None
    assert 5 * 0.2 < slower.seconds_left < 5 * 0.7


def test_no_time_is_left_after_the_last_step() -> None:
    assert folded(BEGIN, {**STEP, "step": 26}).seconds_left == 0


def test_the_time_of_each_phase_adds_up() -> None:
    phases = [("prepare", 100.0), ("start", 102.0), ("train", 111.0), ("save", 121.0), ("train", 124.0)]
    progress = folded(*({"event": "phase", "phase": phase, "time": time} for phase, time in phases))
    assert progress.spent == {"prepare": 2, "start": 9, "train": 10, "save": 3}
    assert progress.since == 124
    ended = fold(progress, {"event": "finished", "step": 20, "time": 130.0})
    assert phases_text(ended) == "prepare 2 s, start 9 s, train 16 s, save 3 s"
    assert ended.since is None
    again = fold(ended, {"event": "attempt_ended", "time": 140.0})
    assert again.spent == ended.spent


def test_preparation_says_how_far_it_is_until_the_next_phase() -> None:
    event = {"event": "progress", "time": 5.0, "phase": "prepare", "what": "day_0.csv", "done": 65536, "total": 1000000}
    assert folded(event).doing == "day_0.csv: 65,536 of 1,000,000 rows"
    assert folded({**event, "total": None}).doing == "day_0.csv: 65,536 rows"
    assert folded(event, {"event": "phase", "phase": "plan"}).doing == ""


def test_preparation_says_its_pace_and_the_time_left() -> None:
    event = {"event": "progress", "time": 5.0, "phase": "prepare", "what": "count", "done": 1000, "total": 50_000}
    later = {**event, "time": 7.0, "done": 21_000}
    assert folded(event, later).doing == "count: 21,000 of 50,000 rows, 10 K rows/s, 2.9 s left"
    assert folded(event, {**later, "total": None}).doing == "count: 21,000 rows, 10 K rows/s"
    assert folded(event, {**later, "time": 5.5}).doing == "count: 21,000 of 50,000 rows"
    assert folded(event, later, {**later, "what": "prepare"}).doing == "prepare: 21,000 of 50,000 rows"


def test_failed_saves_are_counted_and_the_rest_is_kept() -> None:
    failure = {"event": "save_failed", "step": 10, "reason": "No space left on device"}
    progress = folded(BEGIN, STEP, EVALUATION, failure, failure, {"event": "saved", "step": 20}, {"event": "new one"})
    assert progress.saves_failed == 2
    assert progress.saved_step == 20
    assert progress.evaluation == EVALUATION
    assert progress.record == STEP


def test_a_stop_request_shows() -> None:
    assert not folded(BEGIN).stopping
    assert folded({"event": "stop_requested", "by": "SIGTERM"}).stopping
