"""Records of the steps: what the ranks saw since the last record, joined on rank 0."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from dlrmx.parallel.wire import TRAINING, Kind, Link
from dlrmx.recipe.schema import Recipe
from dlrmx.runs.records import append_record
from dlrmx.train.evaluate import score_metrics
from dlrmx.train.schedule import rate_factor
from dlrmx.train.session import Session
from dlrmx.train.step import Forward
from dlrmx.train.stream import Position


class StepLog:
    """Collects logits and labels, and writes one record for all steps since the last. Nothing waits in between."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._scores: list[torch.Tensor] = []
        self._sent: Counter[tuple[Kind, Link]] = Counter()
        self._clamped: Counter[str] = Counter()
        self._began = time.monotonic()
        self._paused = 0.0

    def add(self, done: Forward) -> None:
        """Remember one step's predictions and traffic."""
        self._sent.update(self._session.parts.wire.take_traffic())
        self._clamped.update(self._session.parts.codecs.take_clamped())
        self._scores.append(torch.stack([done.logits.detach(), done.labels], dim=1))

    def skip(self, seconds: float) -> None:
        """Leave time that was not training (evaluation, saving) and its traffic out of the next record."""
        self._paused += seconds
        self._session.parts.wire.take_traffic()
        self._session.parts.codecs.take_clamped()

    def write(self, position: Position) -> None:
        """Write the record of the steps up to `position`. Collective."""
        wire, task, steps = self._session.parts.wire, self._session.task, len(self._scores)
        seconds = time.monotonic() - self._began - self._paused
        sent = _by_kind(self._sent, ("up", "out"), steps)
        sent_out = _by_kind(self._sent, ("out",), steps)
        scores = wire.gather(torch.cat(self._scores))
        memory = wire.agree(rss_bytes())
        clamped = wire.gather(torch.tensor([list(self._clamped.values())]))
        kinds = list(self._clamped)
        self._scores, self._sent, self._clamped = [], Counter(), Counter()
        self._began, self._paused = time.monotonic(), 0.0
        if scores is None or clamped is None:
            return
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
            bytes=sent,
            bytes_out=sent_out,
            clamped=dict(zip(kinds, clamped.sum(0).tolist(), strict=True)),
            rss_bytes=memory,
        )


def _by_kind(sent: Counter[tuple[Kind, Link]], links: Sequence[Link], steps: int) -> dict[str, int]:
    """Bytes a step by kind, over some links."""
    return {kind: sum(sent[kind, link] for link in links) // steps for kind in TRAINING}


def _rates(recipe: Recipe, step: int) -> dict[str, float]:
    """The learning rates of the step that was just done."""
    factor = rate_factor(recipe.optimizer.schedule, step - 1)
    return {"lr_dense": recipe.optimizer.dense.lr * factor, "lr_sparse": recipe.optimizer.sparse.lr * factor}


def rss_bytes() -> int:
    """This process's own memory in RAM; pages of mapped files do not count, for the system takes them back at will."""
    _, resident, of_files, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")
