"""Stands in for dlrmx.train.worker at the process border: no torch, no training, all of its manners and faults.

Started as `fake_worker.py RUN_DIR ATTEMPT` with a RANK. What it does is the JSON in FAKE: steps, step_s, save_every,
save_s, shared (whether ranks see each other's files), and `faults`: a list of {rank, step, how, attempts}, see `fail`.
"""

import ctypes
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dlrmx.checkpoint.manifest import CheckpointManifest, write_manifest
from dlrmx.runs.events import append_event, read_events
from dlrmx.runs.layout import AttemptPaths, RunPaths
from dlrmx.runs.lines import last_line
from dlrmx.runs.records import append_record

RUN = RunPaths(Path(sys.argv[1]))
ATTEMPT: AttemptPaths = RUN.attempt(int(sys.argv[2]), node=int(os.environ["GROUP_RANK"]))
RANK = int(os.environ["RANK"])
ASKED: dict[str, Any] = {"steps": 3, "step_s": 0.02, "save_every": 1000, "save_s": 0, "shared": True, "faults": []}
ASKED |= json.loads(os.environ.get("FAKE", "{}"))


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() == 1:  # its agent died before that
        return
    fail(None)
    append_event(ATTEMPT, "worker_started", rank=RANK)
    print(f"rank {RANK} of {os.environ['WORLD_SIZE']}")
    step = json.loads(ATTEMPT.job.read_text())["from_step"]
    if RANK == 0:
        append_event(ATTEMPT, "begin", step=step, epoch=0, row=0, total_steps=ASKED["steps"])
    while step < ASKED["steps"]:
        if ATTEMPT.stop_request.exists():
            end("stopped", step)
            return
        step += 1
        fail(step)
        time.sleep(ASKED["step_s"])
        if RANK == 0:
            if step % ASKED["save_every"] == 0:
                save(step)
            append_record(ATTEMPT, kind="step", step=step, loss=1.0)
        while RANK > 0 and ASKED["shared"] and recorded() < step and not ATTEMPT.stop_request.exists():
            time.sleep(0.01)  # no rank is ahead of rank 0, as collectives have it
    end("finished", step)


def recorded() -> int:
    """The last step that rank 0 has finished."""
    record = last_line(ATTEMPT.records)
    return record["step"] if record else 0


def fail(step: int | None) -> None:
    """Do what FAKE asks for at this step (None: before the first word)."""
    for fault in ASKED["faults"]:
        hit = fault["rank"] == RANK and fault["step"] == step and ATTEMPT.number in fault.get("attempts", range(1, 99))
        if hit:
            FAULTS[fault["how"]](step)


def raise_error(step: int | None) -> None:
    raise RuntimeError("out of luck")


def tell(step: int | None) -> None:
    append_event(ATTEMPT, "failed", rank=RANK, step=step, cause="NaN", message="loss is NaN", primary=True)
    sys.exit(1)


def bad_input(step: int | None) -> None:
    fields = {"cause": "InputError", "message": "rows are missing", "primary": True, "exit_code": 2}
    append_event(ATTEMPT, "failed", rank=RANK, step=step, **fields)
    sys.exit(2)


def lose_peer(step: int | None) -> None:
    time.sleep(0.1)
    append_event(ATTEMPT, "failed", rank=RANK, step=step, cause="connection lost", message="", primary=False)
    sys.exit(1)


def time_out(step: int | None) -> None:
    """As gloo ends a wait for a rank that does not come."""
    time.sleep(0.5)
    waited = "[gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 3000ms for recv operation to complete"
    append_event(ATTEMPT, "failed", rank=RANK, step=step, cause="RuntimeError", message=waited, primary=False)
    sys.exit(1)


def fill_disk(step: int | None) -> None:
    """Leave no byte on the disk of the run, not even in the last blocks of the files that grow."""
    for name in ("ballast", ATTEMPT.records, ATTEMPT.events, ATTEMPT.log):
        with suppress(OSError), (RUN.dir / name).open("ab", buffering=0) as file:
            size = 1 << 16
            while size:
                try:
                    file.write(b" " * size)
                except OSError:
                    size //= 2
    sys.exit(0)


FAULTS = {
    "fill_disk": fill_disk,
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda _: os.kill(os.getpid(), signal.SIGSEGV),
    "kill_agent": lambda _: os.kill(os.getppid(), signal.SIGKILL),
    "hang": lambda _: time.sleep(3600),
    "raise": raise_error,
    "tell": tell,
    "bad_input": bad_input,
    "lose_peer": lose_peer,
    "time_out": time_out,
}


def save(step: int) -> None:
    append_event(ATTEMPT, "saving", step=step)
    partial = RUN.partial_checkpoint(step, ATTEMPT.number)
    partial.mkdir(parents=True)
    time.sleep(ASKED["save_s"])
    write_manifest(partial, CheckpointManifest(step, ATTEMPT.number, {"step": step}, {}, {}))
    partial.rename(RUN.checkpoint(step))
    append_event(ATTEMPT, "saved", step=step, bytes=0, seconds=ASKED["save_s"])


def end(event: str, step: int) -> None:
    """All ranks save together: the others leave when rank 0 has said that all is saved."""
    if RANK == 0:
        if ASKED["shared"] and not RUN.checkpoint(step).exists():
            save(step)
        append_event(ATTEMPT, event, step=step)
    while not read_events(ATTEMPT, event):
        time.sleep(0.02)


main()
