import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrmx.launch.stopping import StopSignals
from dlrmx.runs.claim import claim_attempt, request_stop
from dlrmx.runs.layout import AttemptPaths, RunPaths

CAUGHT = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGQUIT)


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    before = {number: signal.getsignal(number) for number in CAUGHT}
    signals = StopSignals()
    signals.install()
    yield signals
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptPaths:
    return claim_attempt(RunPaths(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_becomes_a_stop_file(signals: StopSignals, attempt: AttemptPaths, number: signal.Signals) -> None:
    assert not signals.asked(attempt)
    os.kill(os.getpid(), number)
    assert signals.asked(attempt)
    assert attempt.stop_request.read_text() == f"{number.name}\n"
    assert not signals.killed


def test_only_the_first_signal_is_named(signals: StopSignals, attempt: AttemptPaths) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    signals.asked(attempt)
    assert attempt.stop_request.read_text() == "SIGUSR1\n"
    assert not signals.killed, "schedulers repeat SIGTERM"


@pytest.mark.parametrize(
    ("sent", "killed"), [(["SIGINT"], False), (["SIGINT", "SIGINT"], True), (["SIGQUIT"], True), (["SIGTERM"], False)]
)
def test_a_second_interrupt_and_sigquit_mean_now(signals: StopSignals, sent: list[str], killed: bool) -> None:
    for name in sent:
        os.kill(os.getpid(), signal.Signals[name])
    assert signals.killed == killed


def test_a_stop_file_from_elsewhere_asks_too(attempt: AttemptPaths) -> None:
    request_stop(attempt, "cancel")
    assert StopSignals().asked(attempt)


def test_the_launchers_death_asks_to_stop(attempt: AttemptPaths) -> None:
    assert not StopSignals(parent=os.getppid()).asked(attempt)
    assert StopSignals(parent=1_234_567_890).asked(attempt)
    assert "launcher" in attempt.stop_request.read_text()
