"""How long each stage of a step takes."""

import time
from collections import Counter
from typing import Literal, get_args

# In the order of a step. What a stage waits for is part of it; exchanges that nobody waits for are in none.
Stage = Literal[
    "read", "ids", "look_up", "route", "bottom", "vectors", "top", "backward", "gradients", "dense", "update"
]


class Stages:
    """Laps of one stopwatch: the time since the last lap goes to the stage that ends here."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._seconds: Counter[Stage] = Counter()

    def begin(self) -> None:
        """Leave the time until now out."""
        self._last = time.perf_counter()

    def lap(self, stage: Stage) -> None:
        """A stage ends."""
        now = time.perf_counter()
        self._seconds[stage] += now - self._last  # type: ignore[assignment]  # a Counter of seconds
        self._last = now

    def take(self) -> dict[Stage, float]:
        """Seconds of each stage since the last call; starts counting anew."""
        taken = {stage: float(self._seconds[stage]) for stage in get_args(Stage)}
        self._seconds.clear()
        return taken
