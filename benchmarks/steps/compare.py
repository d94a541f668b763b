"""Training steps of dlrmx beside TorchRec's and beside the floor, interleaved in one go on two gloo ranks.

    .venv/bin/python benchmarks/steps/compare.py [--only 1,3] [--rounds 12] [--out steps.json] [--link 200mbit ...]

Prints one line per workload: the ratio of TorchRec's step to ours (above 1: ours is faster) and of the floor's to ours
(1 would be an exchange that costs nothing), each the median over rounds with its quartiles. A round is some steps of
one side and then of the other, so that what else the machine does meets both. TorchRec gets the best of its sharding
types and of its planner's choice. The losses of the first 50 steps have to agree within 1e-5.
With --link the two ranks are two hosts of NETLAB (a program that limits links; needs root), and wire formats are told.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads import WORKLOADS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TORCHREC = ROOT / ".venv-torchrec" / "bin" / "python"
WORLD = 2
TURN = 4  # steps of one side in a round
LOSSES = 50
TYPES = ("planner", "table_wise", "column_wise", "data_parallel")
TOO_LARGE_TO_COPY = 10_000_000  # rows: data_parallel would send as many gradients


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
    workload: str, kind: str, precision: str = "fp32", *, link: bool = False
) -> contextlib.AbstractContextManager[Side]:
    return side("TorchRec", TORCHREC, "torchrec_side.py", workload, kind, precision, link=link)


def best_type(workload: str) -> tuple[str, dict[str, float]]:
    """The sharding type with which TorchRec is fastest here, and the seconds of each."""
    seconds = {}
    for kind in TYPES:
        if kind == "data_parallel" and sum(WORKLOADS[workload].rows) > TOO_LARGE_TO_COPY:
            continue
        try:
            with theirs(workload, kind) as torchrec:
                torchrec.run(2)
                seconds[kind] = torchrec.run(6)
        except SystemExit:
            print(f"  TorchRec does not run {kind}", file=sys.stderr)
    return min(seconds, key=seconds.__getitem__), seconds


def ratios(first: Side, second: Side, rounds: int) -> list[float]:
    """Per round: the first side's step time by the second's. The order within a round alternates."""
    found = []
    for number in range(rounds):
        order = (first, second) if number % 2 == 0 else (second, first)
        times = {each.name: each.run(TURN) for each in order}
        found.append(times[first.name] / times[second.name])
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": middle, "low": low, "high": high}


def shown(value: dict[str, float]) -> str:
    return f"{value['median']:.2f} ({value['low']:.2f} to {value['high']:.2f})"


def compare(workload: str, rounds: int) -> dict[str, Any]:
    """One workload without a link limit."""
    kind, by_type = best_type(workload)
    with theirs(workload, kind) as torchrec, ours(workload, {}) as mine:
        torchrec.run(2), mine.run(2)
        against = ratios(torchrec, mine, rounds)
        for each in (torchrec, mine):
            each.run(max(0, LOSSES - len(each.losses)))
    apart = max(abs(a - b) / b for a, b in zip(mine.losses[:LOSSES], torchrec.losses[:LOSSES], strict=True))
    with side("floor", sys.executable, "floor_side.py", workload) as floor, ours(workload, {}) as mine:
        floor.run(2), mine.run(2)
        to_floor = ratios(floor, mine, rounds)
    by_torchrec, by_floor = spread(against), spread(to_floor)
    result = {
        "workload": workload,
        "torchrec_type": kind,
        "torchrec_seconds_by_type": by_type,
        "torchrec_by_dlrmx": by_torchrec,
        "floor_by_dlrmx": by_floor,
        "largest_relative_loss_difference": apart,
    }
    print(
        f"{workload:18} TorchRec ({kind}) / dlrmx {shown(by_torchrec)}   "
        f"floor / dlrmx {shown(by_floor)}   losses apart {apart:.1e}",
        flush=True,
    )
    return result


def compare_on_link(workload: str, rate: str, rounds: int, formats: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One workload on two hosts with a link of `rate`: everything by the time of TorchRec in fp32."""
    subprocess.run([os.environ["NETLAB"], "up", str(WORLD), rate], check=True)
    try:
        with theirs(workload, "table_wise", link=True) as torchrec:
            torchrec.run(1)
            base = torchrec.run(rounds)
        with theirs(workload, "table_wise", "fp16", link=True) as torchrec:
            torchrec.run(1)
            seconds = {"TorchRec fp16": torchrec.run(rounds)}
        for name, exchange in formats.items():
            with ours(workload, exchange, link=True) as mine:
                mine.run(1)
                seconds[f"dlrmx {name}"] = mine.run(rounds)
    finally:
        subprocess.run([os.environ["NETLAB"], "down"], check=True)
    by = {name: base / value for name, value in seconds.items()}
    print(f"{workload:18} {rate:8} " + "   ".join(f"{name} {value:.2f}x" for name, value in by.items()), flush=True)
    return {"workload": workload, "link": rate, "torchrec_fp32_seconds": base, "times_as_fast": by}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="workloads by their number, e.g. 1,3")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--link", nargs="*", default=[], help="rates, e.g. 1gbit 200mbit 50mbit")
    parser.add_argument("--formats", default='{"fp32": {}}', help="exchange sections by name, JSON")
    asked = parser.parse_args()
    chosen = [name for name in WORKLOADS if not asked.only or name.split()[0] in asked.only.split(",")]
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, {WORLD} ranks of one thread", flush=True)
    if asked.link:
        formats = json.loads(asked.formats)
        results = [compare_on_link(name, rate, asked.rounds, formats) for name in chosen for rate in asked.link]
    else:
        results = [compare(name, asked.rounds) for name in chosen]
        middle = statistics.geometric_mean(result["torchrec_by_dlrmx"]["median"] for result in results)
        print(f"geometric mean of TorchRec / dlrmx: {middle:.2f}")
    if asked.out:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
