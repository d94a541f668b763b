"""The worker: `python -m dlrmx.train.worker RUN_DIR ATTEMPT`, one per rank, started by torch.distributed.run.

Builds in written order: process groups, model and tables under the plan, weights (from a checkpoint or fresh), the
stream of rows; then trains or evaluates. Says in the attempt's events how it ended; exits 0 unless it failed.
"""

import ctypes
import gc
import os
import signal
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from dlrmx.checkpoint.read import open_checkpoint
from dlrmx.errors import DlrmxError, InputError
from dlrmx.parallel.pages import keep_freed_memory
from dlrmx.parallel.wire import TIMEOUT, Wire
from dlrmx.runs.events import append_event
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.train import persist
from dlrmx.train.build import build_parts
from dlrmx.train.loop import evaluate_only, train
from dlrmx.train.saver import Saver
from dlrmx.train.session import Clock, Session, Task
from dlrmx.train.step import PeerStopped
from dlrmx.train.steplog import rss_bytes
from dlrmx.train.stream import Position, Stream

PR_SET_PDEATHSIG = 1
AGENT = b"torch.distributed.run"
# What a rank sees of another's death: it explains nothing, so it must not be shown as the cause.
PEER_SIGNS = ("gloo", "Connection closed by peer", "Connection reset by peer", "NCCL", "Broken pipe")


def main(run_dir: Path, number: int) -> int:
    """Run this rank's part of an attempt; 0, or 1 after a `failed` event."""
    _die_with_agent()
    keep_freed_memory()
    rank = int(os.environ["RANK"])
    attempt = RunPaths(run_dir).attempt(number, node=int(os.environ["GROUP_RANK"]))
    append_event(attempt, "worker_started", rank=rank, rss_bytes=rss_bytes())
    clock = Clock()
    try:
        work(_build(Task.read(run_dir, number), clock))
    except Exception as error:  # the border of the process: whatever it was, it is written down, then we end
        _tell_failure(attempt, rank, clock.step, error)
        return 1
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _build(task: Task, clock: Clock) -> Session:
    device = worker_device()
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    assert dist.get_world_size() == task.plan.world, f"{dist.get_world_size()} ranks, plan for {task.plan.world}"
    settings = task.recipe.exchange
    parts = build_parts(
        task.recipe,
        task.plan,
        wire=Wire(task.plan.ranks_per_node, overlap=settings.overlap, messages=settings.messages),
        dense_dim=len(task.recipe.dense),
        device=device,
    )
    return Session(task, parts, clock)


def work(session: Session) -> None:
    """Load, then train or evaluate. Collective."""
    task, parts = session.task, session.parts
    position, order_seed = _load(session)
    if task.evaluate is not None:
        evaluate_only(session, task.evaluate, position.step)
        return
    stream = Stream(
        session.split("train"), task.recipe, order_seed=order_seed, rank=parts.wire.rank, world=parts.wire.world
    )
    saved_step = position.step if task.checkpoint else -1
    train(session, stream, position, Saver(session, order_seed=order_seed, saved_step=saved_step))


def _load(session: Session) -> tuple[Position, int]:
    """Give all tensors their values; where to go on, and the seed of the sample order."""
    task, parts = session.task, session.parts
    if task.checkpoint is not None:
        with open_checkpoint(task.checkpoint) as stored:
            persist.restore(parts, task.recipe, stored, weights_only=task.evaluate is not None)
            return persist.position_of(stored)
    if task.recipe.train.init_from is not None:
        with open_checkpoint(Path(task.recipe.train.init_from)) as stored:
            persist.restore(parts, task.recipe, stored, weights_only=True)
    else:
        parts.embeddings.initialise(task.recipe.seed)
    return Position(), task.recipe.seed


def worker_device() -> torch.device:
    """This worker's GPU, or the processor where the machine has none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def _tell_failure(attempt: AttemptPaths, rank: int, step: int | None, error: Exception) -> None:
    """Write a `failed` event and, for what is our bug, the traceback to the log."""
    secondary = isinstance(error, PeerStopped) or any(sign in str(error) for sign in PEER_SIGNS)
    fields = {"cause": type(error).__name__, "message": str(error), "primary": not secondary}
    if isinstance(error, InputError):
        fields["exit_code"] = error.exit_code
    append_event(attempt, "failed", rank=rank, step=step, **fields)
    if isinstance(error, DlrmxError):
        print(error, file=sys.stderr)
    else:
        traceback.print_exception(error)


def _die_with_agent() -> None:
    """A killed agent would leave its workers training on, and writing into a run that somebody resumes."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Importing torch takes seconds. One that was killed meanwhile has left us to another parent.
    if AGENT not in Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0"):
        sys.exit("the agent that started this worker is gone")


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # After a failure, groups whose peers are gone may hang in their destructors.
    os._exit(code)
