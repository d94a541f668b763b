"""When checkpoints are written, what happens when one cannot be, and which are kept."""

import time
from collections.abc import Set as AbstractSet
from pathlib import Path

from dlrmx.checkpoint.publish import newest_attempt
from dlrmx.checkpoint.retain import list_checkpoints, prune
from dlrmx.checkpoint.write import SaveError, save
from dlrmx.recipe.schema import Minutes, Steps
from dlrmx.train import persist
from dlrmx.train.metrics import Metrics
from dlrmx.train.session import Session
from dlrmx.train.stream import Position


class Saver:
    """Saves the session's state. Rank 0 decides by the clock, and its word reaches all in the step's header."""

    def __init__(self, session: Session, *, order_seed: int, saved_step: int) -> None:
        self._session, self._order_seed = session, order_seed
        self._settings = session.task.recipe.checkpoint
        self._saved_step = saved_step
        self._last = time.monotonic()
        self._good: frozenset[Path] = frozenset()
        self._metrics: tuple[int, dict[str, float]] = (-1, {})
        self._best: float | None = None
        if session.leads:
            self._best = self._stored_best()
            self._prune()  # a save that was killed may have left so much that the next would not fit

    def minutes_due(self) -> bool:
        """Whether the recipe's minutes are over; ask rank 0."""
        every = self._settings.every
        return isinstance(every, Minutes) and time.monotonic() - self._last >= every.minutes * 60

    def steps_due(self, step: int) -> bool:
        """Whether the recipe asks for a checkpoint of this step; alike on all ranks."""
        return isinstance(self._settings.every, Steps) and step % self._settings.every.steps == 0

    def offer(self, position: Position, split: str, metrics: Metrics | None) -> bool:
        """Note an evaluation, of which rank 0 has the metrics; True on all ranks where it is the best. Collective."""
        better = False
        if metrics is not None:
            values = {name: value for name, value in metrics.as_dict().items() if value is not None}
            named = {f"{split}.{name}": float(value) for name, value in values.items()}
            self._metrics = (position.step, named)
            better = self._is_best(named)
        return bool(self._session.parts.wire.agree(int(better)))

    def save(self, position: Position, *, ends: bool = False) -> None:
        """Write a checkpoint of `position` unless it has one, or the recipe wants none. Collective.

        Raises SaveError where it cannot and the recipe says stop, or the training `ends` here: what follows a failed
        save would then be said to be saved, and is lost.
        """
        if position.step == self._saved_step or not self._settings.save:
            return
        session, task, step = self._session, self._session.task, position.step
        metrics = self._metrics[1] if self._metrics[0] == step else {}
        session.tell("phase", phase="save")
        session.tell("saving", step=step)
        try:
            saved = save(
                task.run,
                step=step,
                attempt=task.attempt.number,
                pieces=persist.pieces(session.parts, task.recipe),
                state=persist.state(task.recipe, task.plan, position, self._order_seed, metrics),
                group=session.parts.wire.group("control"),
                on_phase=lambda phase: session.tell("save_phase", step=step, phase=phase),
            )
        except SaveError as error:
            session.tell("save_failed", step=step, reason=str(error))
            superseded = newest_attempt(task.run) > task.attempt.number
            if ends or self._settings.on_error == "stop" or session.parts.wire.agree(int(superseded)):
                raise
        else:
            session.tell("saved", step=step, bytes=saved.bytes, seconds=saved.seconds)
            self._saved_step = step
            if session.leads:
                self._prune({saved.path})
        self._last = time.monotonic()
        session.tell("phase", phase="train")

    def _prune(self, saved: AbstractSet[Path] = frozenset()) -> None:
        best = self._settings.best
        pruned = prune(
            self._session.task.run,
            keep=self._settings.keep,
            best_metric=best.metric if best else None,
            attempt=self._session.task.attempt.number,
            known_good=self._good | saved,
        )
        self._good = pruned.good
        for reason in pruned.failed:
            self._session.tell("prune_failed", reason=reason)

    def _is_best(self, metrics: dict[str, float]) -> bool:
        best = self._settings.best
        if best is None or best.metric not in metrics:
            return False
        value = _badness(best.metric, metrics[best.metric])
        if self._best is not None and value >= self._best:
            return False
        self._best = value
        return True

    def _stored_best(self) -> float | None:
        best = self._settings.best
        if best is None:
            return None
        stored = [info.metrics for info in list_checkpoints(self._session.task.run) if info.kind == "checkpoint"]
        values = [_badness(best.metric, metrics[best.metric]) for metrics in stored if best.metric in metrics]
        return min(values, default=None)


def _badness(metric: str, value: float) -> float:
    """Smaller is better."""
    return -value if metric.endswith(".auc") else value
