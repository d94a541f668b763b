"""Items made ahead by a thread: all of them, in order, no more than asked for, and an end in every case."""

import threading
import time
from collections.abc import Iterator

import pytest

from dlrmx.errors import InputError
from dlrmx.train import ahead
from dlrmx.train.ahead import DEPTH, Ahead


def wait_until(condition: threading.Event) -> None:
    assert condition.wait(240)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "ahead"]


def test_all_items_come_in_their_order() -> None:
    with Ahead(iter(range(1000))) as items:
        assert list(items) == list(range(1000))
        assert list(items) == []
    assert threads() == []


def test_the_thread_is_a_few_items_ahead_and_no_more() -> None:
    made: list[int] = []
    enough = threading.Event()

    def count() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == DEPTH:
                enough.set()
            yield number

    with Ahead(count()) as items:
        wait_until(enough)
        time.sleep(0.05)
        assert made == list(range(DEPTH + 1))  # the last one waits for its place
        assert next(items) == 0
    assert len(made) <= DEPTH + 2
    assert threads() == []


def test_an_item_is_made_while_another_is_worked_on() -> None:
    second = threading.Event()

    def two() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    with Ahead(two()) as items:
        assert next(items) == 1
        wait_until(second)


def test_an_error_comes_out_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise InputError("feature f: id 7 is outside of its table's 3 rows")

    with Ahead(broken()) as items:
        assert next(items) == 1
        for _ in range(2):
            with pytest.raises(InputError, match="feature f: id 7 is outside"):
                next(items)
    assert threads() == []


def test_leaving_early_or_by_an_error_ends_the_thread() -> None:
    with Ahead(iter(range(100))) as items:
        assert next(items) == 0
    with pytest.raises(RuntimeError, match="the step failed"), Ahead(iter(range(100))):
        raise RuntimeError("the step failed")
    assert threads() == []


def test_a_reader_that_hangs_does_not_keep_the_training_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hanging() -> Iterator[int]:
        yield 1
        released.wait(60)

    monkeypatch.setattr(ahead, "JOIN_SECONDS", 0.05)
    began = time.monotonic()
    with Ahead(hanging()) as items:
        assert next(items) == 1
    assert time.monotonic() - began < 5
    released.set()
