"""Runs an iterator in a thread of its own, a few items ahead of the one that is worked on."""

import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, TypeVar

DEPTH = 2
# An item is read in far less. A disk that hangs must not keep the process from ending: the thread ends with it.
JOIN_SECONDS = 10.0

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """A context in which the items of an iterator are made by a thread, `DEPTH` in advance, and come in their order.

    What the iterator raises is raised where its next item is asked for. Leaving the context ends the thread.
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._ready: deque[Item] = deque()
        self._error: Exception | None = None
        self._ended = self._left = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)

    def __enter__(self) -> "Ahead[Item]":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._left = True
            self._changed.notify_all()
        self._thread.join(JOIN_SECONDS)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended)
            if self._ready:
                item = self._ready.popleft()
                self._changed.notify_all()
                return item
        if self._error is not None:
            raise self._error
        raise StopIteration

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._hand_over(item):
                    return
        except Exception as error:  # the border of the thread: it is raised again where the items are worked on
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _hand_over(self, item: Item) -> bool:
        """Wait for a place; whether the context is still there."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < DEPTH or self._left)
            self._ready.append(item)
            self._changed.notify_all()
            return not self._left
