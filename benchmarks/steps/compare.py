"""Training steps of dlrmx beside TorchRec's and beside the floor, interleaved in one go on two gloo ranks.

    .venv/bin/python benchmarks/steps/compare.py [--only 1,3] [--rounds 12] [--sides floor] [--out steps.json]

Prints per workload the ratio of TorchRec's step to ours (above 1: ours is faster) and of the floor's to ours (1 would
be an exchange that costs nothing), each the median over rounds with its quartiles. A round is some steps of one side
and then of the other, so that what else the machine does meets both. TorchRec gets the best of its sharding types and
of its planner's choice, and the dense part of dlrmx, with which it is faster; "as it comes" has TorchRec's own model.
The losses of the first 50 steps have to agree within 1e-5. --out is kept: what was measured before stays in it.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workloads import WORKLOADS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TORCHREC = ROOT / ".venv-torchrec" / "bin" / "python"
WORLD = 2
TURN = 4  # steps of one side in a round
LOSSES = 50
AGREE = 1e-5
WARM = 2
SIDES = ("torchrec", "as_it_comes", "floor")
TYPES = ("planner", "table_wise", "column_wise", "data_parallel")
MOST_COPIED = 50_000_000  # numbers: data_parallel would send as many gradients


@dataclass
class Side:
    """The worker processes of one side; they wait while another side has its turn."""

    name: str
    processes: list[subprocess.Popen[str]]
    losses: list[float] = field(default_factory=list)

    def run(self, steps: int) -> float:
        """Train; the median over steps of the slowest rank's time, in seconds."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"run {steps}\n")
            process.stdin.flush()
        answers = [self._answer(process) for process in self.processes]
        self.losses += [sum(losses) for losses in zip(*(answer["losses"] for answer in answers), strict=True)]
        slowest: list[float] = [max(times) for times in zip(*(answer["seconds"] for answer in answers), strict=True)]
        return statistics.median(slowest)

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def side(name: str, python: Path | str, script: str, workload: str, *more: str, link: bool = False) -> Iterator[Side]:
    """Start a side and wait until it is ready; end it at the end."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+") as errors:
        words = [str(python), str(HERE / script), workload]
        processes = [
            subprocess.Popen(
                [*_host(rank, link), *words, str(rank), str(WORLD), f"file://{folder}/store", *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=env,
            )
            for rank in range(WORLD)
        ]
        started = Side(name, processes)
        try:
            for process in processes:
                started._answer(process)
            yield started
        except SystemExit:
            errors.seek(0)
            print(errors.read()[-2000:], file=sys.stderr)
            raise
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _host(rank: int, link: bool) -> list[str]:
    return [os.environ["NETLAB"], "run", str(rank)] if link else []


def ours(workload: str, exchange: dict[str, Any], *, link: bool = False) -> contextlib.AbstractContextManager[Side]:
    return side("dlrmx", sys.executable, "dlrmx_side.py", workload, json.dumps(exchange), link=link)


def theirs(
    workload: str, kind: str, precision: str = "fp32", *, model: str = "ours", link: bool = False
) -> contextlib.AbstractContextManager[Side]:
    return side("TorchRec", TORCHREC, "torchrec_side.py", workload, kind, precision, model, link=link)


def best_type(workload: str) -> tuple[str, dict[str, float]]:
    """The sharding type with which TorchRec is fastest here, and the seconds of each that trains as we do.

    Where columns are sliced it keeps a row-wise sum for each slice: that is another optimizer, with other losses.
    """
    with ours(workload, {}) as mine:
        mine.run(WARM + TURN)
    seconds = {}
    for kind in TYPES:
        if kind == "data_parallel" and sum(WORKLOADS[workload].rows) * WORKLOADS[workload].dim > MOST_COPIED:
            continue
        with theirs(workload, kind) as torchrec:
            torchrec.run(WARM)
            took = torchrec.run(TURN)
        if apart(mine.losses, torchrec.losses) <= AGREE:
            seconds[kind] = took
        else:
            print(f"  TorchRec's {kind} trains something else", file=sys.stderr)
    return min(seconds, key=seconds.__getitem__), seconds


def apart(losses: Sequence[float], wanted: Sequence[float]) -> float:
    """The largest relative difference."""
    return max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))


def in_turn(first: Side, second: Side, rounds: int) -> list[tuple[float, float]]:
    """Per round the seconds of a step of each side. The order within a round alternates."""
    found = []
    first.run(WARM), second.run(WARM)
    for number in range(rounds):
        order = (first, second) if number % 2 == 0 else (second, first)
        times = {each.name: each.run(TURN) for each in order}
        found.append((times[first.name], times[second.name]))
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "low": low, "high": high}


def shown(value: dict[str, float]) -> str:
    return f"{value['median']:.2f} ({value['low']:.2f} to {value['high']:.2f})"


def losses_apart(first: Side, second: Side) -> float:
    """The largest relative difference between the losses of the first 50 steps."""
    for each in (first, second):
        each.run(max(1, LOSSES - len(each.losses)))
    return apart(first.losses[:LOSSES], second.losses[:LOSSES])


def compare(workload: str, rounds: int, sides: Sequence[str], known: dict[str, Any]) -> dict[str, Any]:
    """One workload without a link limit: ours in turn with each of `sides`; `known` is what was measured before."""
    if "torchrec" in sides:
        kind, by_type = best_type(workload)
        known = {**known, "torchrec_type": kind, "torchrec_seconds_by_type": by_type}
    kind = known["torchrec_type"]
    starts: dict[str, Callable[[], contextlib.AbstractContextManager[Side]]] = {
        "torchrec": partial(theirs, workload, kind),
        "as_it_comes": partial(theirs, workload, kind, model="theirs"),
        "floor": partial(side, "floor", sys.executable, "floor_side.py", workload),
    }
    print(f"{workload:18} TorchRec {kind}", flush=True)
    for name in sides:
        with starts[name]() as other, ours(workload, {}) as mine:
            times = in_turn(other, mine, rounds)
            losses = losses_apart(other, mine) if name == "torchrec" else None
        ratio = spread([theirs_s / ours_s for theirs_s, ours_s in times])
        theirs_ms, ours_ms = (1e3 * statistics.median(seconds) for seconds in zip(*times, strict=True))
        known[name] = {"ratio": ratio, "ms": theirs_ms, "dlrmx_ms": ours_ms, "losses_apart": losses}
        said = "" if losses is None else f"   losses apart {losses:.1e}"
        print(f"    {name:12} {theirs_ms:7.1f} ms, dlrmx {ours_ms:7.1f}: {shown(ratio)}{said}", flush=True)
    return known


def machine() -> dict[str, Any]:
    """What it was measured on, and with."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    versions = {name: version(name) for name in ("torch", "fbgemm-gpu-cpu")}
    return {"processor": model[0], "cores": len(os.sched_getaffinity(0)), "torchrec": "1.8.0", **versions}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="workloads by their number, e.g. 1,3")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    chosen = [name for name in WORKLOADS if not asked.only or name.split()[0] in asked.only.split(",")]
    print(", ".join(f"{key} {value}" for key, value in machine().items()), flush=True)
    kept = json.loads(asked.out.read_text()) if asked.out and asked.out.exists() else {"workloads": {}}
    for name in chosen:
        before = kept["workloads"]
        found = compare(name, asked.rounds, asked.sides, before.get(name, {}))
        kept = {"machine": machine(), "workloads": {**before, name: found}}
        if asked.out:
            asked.out.write_text(json.dumps(kept, indent=1) + "\n")
    medians = [one["torchrec"]["ratio"]["median"] for one in kept["workloads"].values()]
    print(f"geometric mean of TorchRec / dlrmx over {len(medians)} workloads: {statistics.geometric_mean(medians):.2f}")


if __name__ == "__main__":
    main()
