"""Records of the steps: what the ranks saw since the last record, joined on rank 0."""

import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch

from dlrmx.parallel.wire import TRAINING, Kind, Link
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.records import append_record
from dlrmx.train.evaluate import score_metrics
from dlrmx.train.schedule import rate_factor
from dlrmx.train.session import Session
from dlrmx.train.stages import Stage
from dlrmx.train.step import Done
from dlrmx.train.stream import Position

LINKS: tuple[tuple[Link, ...], ...] = (("up", "out"), ("out",))  # of `bytes` and of `bytes_out`


class StepLog:
    """Collects what the steps did, and writes one record for all steps since the last. Nothing waits in between."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._forget()
        self._began = time.monotonic()
        self._paused = 0.0

    def _forget(self) -> None:
        self._scores: list[torch.Tensor] = []
        self._sent: Counter[tuple[Kind, Link]] = Counter()
        self._clamped: Counter[str] = Counter()
        self._stages: Counter[Stage] = Counter()  # seconds
        self._waited: Counter[Kind] = Counter()  # seconds

    def add(self, done: Done) -> None:
        """Remember one step's predictions, traffic and times."""
        parts = self._session.parts
        self._sent.update(parts.wire.take_traffic())
        self._clamped.update(parts.codecs.take_clamped())
        self._stages.update(parts.stages.take())
        self._waited.update(parts.wire.take_waited())
        self._scores.append(torch.stack([done.logits, done.labels], dim=1))

    def skip(self, seconds: float) -> None:
        """Leave time that was not training (evaluation, saving) and its traffic out of the next record."""
        parts = self._session.parts
        self._paused += seconds
        for forgotten in (
            parts.wire.take_traffic,
            parts.wire.take_waited,
            parts.codecs.take_clamped,
            parts.stages.take,
        ):
            forgotten()
        parts.stages.begin()

    def write(self, position: Position) -> None:
        """Write the record of the steps up to `position`. Collective."""
        wire, task, steps = self._session.parts.wire, self._session.task, len(self._scores)
        seconds = time.monotonic() - self._began - self._paused
        scores = wire.gather(torch.cat(self._scores))
        memory = wire.agree(rss_bytes() + wire.shared_bytes)
        counts = (self._clamped, self._stages, self._waited)
        sent = [sum(self._sent[kind, link] for link in links) for links in LINKS for kind in TRAINING]
        numbers = [*(value for count in counts for value in count.values()), *sent]
        ranks = wire.gather(torch.tensor([numbers], dtype=torch.float64))
        if scores is not None and ranks is not None:
            sizes = [*(len(count) for count in counts), *(len(TRAINING) for _ in LINKS)]
            clamped, stages, waited, to_others, out = ranks.split(sizes, dim=1)
            metrics = score_metrics(scores)
            append_record(
                task.attempt,
                kind="step",
                step=position.step,
                epoch=position.epoch,
                row=position.row,
                loss=metrics.loss,
                ne=metrics.ne,
                auc=metrics.auc,
                **_rates(task.recipe, position.step),
                samples_per_s=metrics.rows / seconds,
                step_ms=1000 * seconds / steps,
                stage_ms=_by_rank(self._stages, stages, steps),
                exposed_ms=_by_rank(self._waited, waited, steps),
                bytes=_by_kind(to_others, steps),
                bytes_out=_by_kind(out, steps),
                clamped=dict(zip(self._clamped, clamped.sum(0).to(torch.int64).tolist(), strict=True)),
                rss_bytes=memory,
            )
        self._forget()
        self._began, self._paused = time.monotonic(), 0.0


def _by_rank(names: Iterable[str], seconds: torch.Tensor, steps: int) -> dict[str, list[float]]:
    """Milliseconds a step by name, of every rank; seconds (W, names)."""
    columns = (1000 * seconds / steps).T.tolist()
    return {name: [round(value, 3) for value in column] for name, column in zip(names, columns, strict=True)}


def _by_kind(sent: torch.Tensor, steps: int) -> dict[str, int]:
    """Bytes a step and rank by kind, in the mean over ranks; sent (W, kinds)."""
    return {kind: round(size / steps) for kind, size in zip(TRAINING, sent.mean(0).tolist(), strict=True)}


def _rates(recipe: Recipe, step: int) -> dict[str, float]:
    """The learning rates of the step that was just done."""
    factor = rate_factor(recipe.optimizer.schedule, step - 1)
    return {"lr_dense": recipe.optimizer.dense.lr * factor, "lr_sparse": recipe.optimizer.sparse.lr * factor}


def rss_bytes() -> int:
    """This process's own memory in RAM; pages of mapped files do not count, for the system takes them back at will.

    Nor does memory that it shares (Wire.shared_bytes): Linux would count it in each process that has it.
    """
    _, resident, of_files, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")
