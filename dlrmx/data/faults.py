"""What becomes of rows that cannot be read: an error at the first one, or counted, the first five told by file:line."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlrmx.data.manifest import OFFENDERS
from dlrmx.errors import InputError, Problem

Policy = Literal["fail", "skip", "zero"]


@dataclass
class Tally:
    """How many were bad, and the first five of them, each by its place and what is wrong with it."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, count: int, offenders: list[str]) -> None:
        """Count some that come after all counted so far."""
        self.count += count
        self.first += offenders[: OFFENDERS - len(self.first)]


class Faults:
    """The bad rows of one batch of `rows` rows."""

    def __init__(self, rows: int, policy: Policy) -> None:
        self.policy = policy
        self.bad: NDArray[np.bool_] = np.zeros(rows, dtype=np.bool_)
        self._told: dict[int, str] = {}

    def flag(
        self, rows: NDArray[np.int64], at: Callable[[int], str], name: str, what: Callable[[int], str], hint: str
    ) -> None:
        """Each of `rows` (ascending, perhaps repeated, not empty) is bad in column `name`.

        `what` says why for a position in `rows`, `at` where a row stands. Raises InputError for the first one where
        the policy is to fail.
        """
        if self.policy == "fail":
            raise InputError([Problem(what(0), where=at(int(rows[0])), key=name, hint=hint)])
        key = f"{name}: " if name else ""
        self.mark(rows, lambda position: f"{at(int(rows[position]))}: {key}{what(position)}")

    def mark(self, rows: NDArray[np.int64], tell: Callable[[int], str]) -> None:
        """Each of `rows` (ascending, perhaps repeated) is bad; `tell` says why for a position in `rows`."""
        firsts = np.flatnonzero(~self.bad[rows])
        # Of the first five bad rows of a batch, each is among the first five that some column finds.
        for position in firsts[np.unique(rows[firsts], return_index=True)[1][:OFFENDERS]]:
            self._told[int(rows[position])] = tell(int(position))
        self.bad[rows] = True

    def count_in(self, tally: Tally) -> None:
        """Add this batch to the count over all batches before it."""
        tally.add(int(self.bad.sum()), [self._told[row] for row in sorted(self._told)])

    @property
    def kept(self) -> NDArray[np.int64]:
        """The rows that go on: all, or with `skip` the good ones."""
        left = ~self.bad if self.policy == "skip" else np.ones(len(self.bad), dtype=np.bool_)
        return np.flatnonzero(left)
