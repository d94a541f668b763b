"""The training loop, top to bottom: step; once in a while log, evaluate, save; stop when asked; the test at the end."""

import time
from collections.abc import Iterator
from typing import Literal

from torch import Tensor

from dlrmx.data.manifest import read_manifest
from dlrmx.data.predictions import Predictions
from dlrmx.parallel.carrier import Order
from dlrmx.runs.records import append_record
from dlrmx.train.ahead import Ahead
from dlrmx.train.by_file import ByFile
from dlrmx.train.evaluate import evaluate
from dlrmx.train.metrics import Metrics
from dlrmx.train.saver import Saver
from dlrmx.train.schedule import rate_factor
from dlrmx.train.session import Evaluation, Session
from dlrmx.train.step import Asked, Sent, Slice, ask, send, train_sent
from dlrmx.train.steplog import StepLog
from dlrmx.train.stream import Position, Stream, pinned

Outcome = Literal["finished", "stopped"]


def train(session: Session, stream: Stream, position: Position, saver: Saver) -> Outcome:
    """Train from `position` to the recipe's end, or until a stop is asked for; both end with a checkpoint."""
    with Ahead(pinned(stream.slices(position), session.parts.device)) as slices:
        return _train(session, stream, slices, position, saver)


def _train(session: Session, stream: Stream, slices: Iterator[Slice], position: Position, saver: Saver) -> Outcome:
    recipe, log = session.task.recipe, StepLog(session)
    on = recipe.train.evaluate.on
    session.tell(
        "begin",
        step=position.step,
        epoch=position.epoch,
        row=position.row,
        total_steps=stream.total_steps,
        path=session.parts.wire.path,
    )
    session.tell("phase", phase="train")
    feed = Feed(session, slices, saver, position.step)
    upcoming = feed.ask if recipe.exchange.overlap else _not_ahead
    sent = feed.send()
    while sent is not None:
        rate = rate_factor(recipe.optimizer.schedule, position.step)
        session.clock.step = position.step
        done, following = train_sent(session.parts, sent, rate=rate, upcoming=upcoming)
        position = stream.after(position)
        last = position.step == stream.total_steps

        log.add(done)
        order = done.order
        del done  # its vectors and their gradients, which would else lie beside those of the next step
        if position.step % recipe.log.every.steps == 0 or last:
            log.write(position)

        # Once in a while: evaluate, save. Neither counts as training time.
        paused, best = time.monotonic(), False
        if _evaluation_due(session, position.step):
            metrics = evaluate_and_record(session, Evaluation(on, shown=on), position.step, final=False)
            session.tell("phase", phase="train")
            best = saver.offer(position, on, metrics)
        stop = order == Order.STOP
        if saver.steps_due(position.step) or best or stop or last or order == Order.SAVE:
            saver.save(position, ends=stop or last)
        log.skip(time.monotonic() - paused)
        if stop and not last:
            session.tell("stopped", step=position.step)
            return "stopped"
        sent = following or feed.send()
    return _finish(session, position)


class Feed:
    """Brings batches on their way, one after the other."""

    def __init__(self, session: Session, slices: Iterator[Slice], saver: Saver, step: int) -> None:
        self._session, self._slices, self._saver, self._step = session, slices, saver, step

    def ask(self, order: Order = Order.GO_ON) -> Asked | None:
        """Start telling of the next batch; `order` is what follows the step before it. None at the end. Collective."""
        rows = None if order == Order.STOP else next(self._slices, None)
        self._session.parts.stages.lap("read")
        if rows is None:
            return None
        asked = ask(self._session.parts, rows, step=self._step, order=self._order(order))
        self._step += 1
        return asked

    def send(self) -> Sent | None:
        """Bring the next batch on its way with nothing else to do meanwhile. Collective."""
        self._session.parts.stages.begin()
        asked = self.ask()
        sent = None if asked is None else send(self._session.parts, asked)
        self._session.parts.stages.lap("route")
        return sent

    def _order(self, before: Order) -> Order:
        """What rank 0 tells all ranks to do after this step; no save where one follows the step before."""
        if self._session.leads and self._session.task.stop_asked():
            return Order.STOP
        due = self._session.leads and before != Order.SAVE and self._saver.minutes_due()
        return Order.SAVE if due else Order.GO_ON


def _not_ahead(order: Order) -> None:
    """The next batch is asked for when this one is done."""


def _finish(session: Session, position: Position) -> Outcome:
    split = session.task.recipe.train.evaluate.at_end
    if split is not None:
        return evaluate_only(session, Evaluation(split, shown=split), position.step)
    session.tell("finished", step=position.step)
    return "finished"


def evaluate_only(session: Session, asked: Evaluation, step: int) -> Outcome:
    """The last, or only, evaluation of an attempt; a stop request ends it without a result. Collective."""
    evaluate_and_record(session, asked, step, final=True)
    if session.parts.wire.agree(int(session.leads and session.task.stop_asked())):
        session.tell("stopped", step=step)
        return "stopped"
    session.tell("finished", step=step)
    return "finished"


def evaluate_and_record(session: Session, asked: Evaluation, step: int, *, final: bool) -> Metrics | None:
    """Evaluate a split, write its record and the scores asked for. Collective.

    Gives the metrics on rank 0, None elsewhere or where a stop came.
    """
    session.tell("phase", phase="evaluate")
    by_file = ByFile(_rows_by_file(session) if asked.by_file else {})

    def on_scores(scores: Tensor) -> None:
        if asked.predict is not None:
            predictions.append(*scores.cpu().numpy().T)
        if asked.by_file:
            by_file.add(scores.cpu().numpy())

    with Predictions(asked.predict if session.leads else None) as predictions:
        metrics = evaluate(
            session.parts,
            session.split(asked.split),
            batch=session.task.recipe.train.batch,
            step=step,
            stop_asked=session.task.stop_asked if final else lambda: False,
            on_scores=None if asked.predict is None and not asked.by_file else on_scores,
        )
        if metrics is not None:
            predictions.publish()
            if metrics.rows or asked.predict is None:  # of rows without labels there are scores alone
                _record(session, asked, step, metrics, final=final)
                for file, found in by_file.metrics.items():
                    record = {"kind": "file_evaluation", "step": step, "file": file, **found.as_dict()}
                    append_record(session.task.attempt, **record)
    return metrics


def _rows_by_file(session: Session) -> dict[str, int]:
    """The rows of each file that is scored: all are in the training split, as they were never split."""
    return {path: rows[0] for path, rows in read_manifest(session.task.data).by_file.items()}


def _record(session: Session, asked: Evaluation, step: int, metrics: Metrics, *, final: bool) -> None:
    append_record(
        session.task.attempt,
        kind="evaluation",
        step=step,
        split=asked.shown,
        final=final,
        optimum_ne=read_manifest(session.task.data).splits[asked.split].optimum_ne,
        **metrics.as_dict(),
    )


def _evaluation_due(session: Session, step: int) -> bool:
    every = session.task.recipe.train.evaluate.every
    return every is not None and step % every.steps == 0
