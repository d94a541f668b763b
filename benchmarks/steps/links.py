"""Training steps between two hosts with a slow link: dlrmx in its wire formats, thresholded, in chunks, and TorchRec.

    NETLAB=netlab .venv/bin/python benchmarks/steps/links.py [--only 1,3] [--rates 1gbit 200mbit 50mbit] [--rounds 5]
                                                             [--sides NAME...] [--out links.json]

NETLAB is a program that makes hosts of one machine's network namespaces and limits their links: `up N`, `rate RATE`,
`run HOST CMD`, `down`; it needs root. One rank with one thread is on each host. All sides stay started and take turns
of some steps, so that what else the machine does meets all of them; each is told by its time and by how many times as
fast it is as TorchRec in fp32 and in fp16 in the same round: medians over rounds, with quartiles. TorchRec is
table-wise, which is the fastest of its types here.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from compare import WORLD, Side, ours, spread, theirs
from workloads import WORKLOADS

TURN = 3  # steps of one side in a round; the first finds nothing of its own in the caches
THEIRS = {"TorchRec": "fp32", "TorchRec fp16": "fp16"}
LINK = {"messages": 16}


def _in(name: str) -> dict[str, Any]:
    return {**LINK, "forward": name, "backward": name, "dense": name}


def _chunks(exchange: Mapping[str, Any], number: int = 4, messages: int = 4) -> dict[str, Any]:
    """In so many chunks, each in so many messages."""
    return {**exchange, "chunks": number, "messages": messages}


# 100 times fewer bytes of dense gradients and 7 times fewer of vectors, at a quality that docs/thresholds.md tells.
DCT = {**_in("int4"), "dense": "fp16", "threshold": {"dense": {"sparsity": 0.999, "every": 200}}}

# The recipe's `exchange` of each side.
OURS: dict[str, dict[str, Any]] = {
    "fp32": LINK,
    "fp32, 4 chunks": _chunks(LINK),
    "fp16": _in("fp16"),
    "fp16, 4 chunks": _chunks(_in("fp16")),
    "bf16, 4 chunks": _chunks(_in("bf16")),
    "int8, 4 chunks": _chunks(_in("int8")),
    "int4, 4 chunks": _chunks({**_in("int4"), "dense": "int8"}, messages=2),
    "DCT, 2 chunks": _chunks(DCT, 2, messages=2),
    "DCT, 4 chunks": _chunks(DCT, messages=2),
}


@contextmanager
def started(workload: str, names: Sequence[str]) -> Iterator[dict[str, Side]]:
    """All sides, on two hosts, one step done; where there are thresholds, until they are found a second time.

    The first are of a training that has not begun yet: some steps later 40 times as much is over them.
    """
    with ExitStack() as stack:
        sides = {}
        for name in names:
            if name in THEIRS:
                side = theirs(workload, "table_wise", THEIRS[name], link=True)
            else:
                side = ours(workload, OURS[name], link=True)
            sides[name] = stack.enter_context(side)
            sides[name].run(1 + OURS.get(name, {}).get("threshold", {}).get("dense", {}).get("every", 0))
        yield sides


def rounds(sides: Mapping[str, Side], number: int) -> list[dict[str, float]]:
    """Seconds of a step by side in each round; the order changes from round to round.."""
    found, names = [], list(sides)
    for turn in range(number):
        first = turn % len(names)
        found.append({name: sides[name].run(TURN) for name in names[first:] + names[:first]})
    return found


def told(workload: str, rate: str, found: Sequence[dict[str, float]]) -> dict[str, Any]:
    """One link's results, printed."""
    result: dict[str, Any] = {"workload": workload, "link": rate, "rounds": len(found), "sides": {}}
    print(f"{workload}, {rate}, {len(found)} rounds", flush=True)
    for name in found[0]:
        entry: dict[str, Any] = {"seconds": statistics.median(times[name] for times in found)}
        words = f"  {name:16} {1000 * entry['seconds']:7.0f} ms"
        for base in THEIRS:
            if base in found[0] and name != base:
                by = spread([times[base] / times[name] for times in found])
                entry[f"{base} by it"] = by
                words += f"   {base} / it {by['median']:5.2f} ({by['low']:.2f} to {by['high']:.2f})"
        result["sides"][name] = entry
        print(words, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="1,3", help="workloads by their number")
    parser.add_argument("--rates", nargs="+", default=["1gbit", "200mbit", "50mbit"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", default=[*THEIRS, *OURS])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    netlab = os.environ["NETLAB"]
    print(f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, {WORLD} hosts with a rank of one thread each")
    results = []
    subprocess.run([netlab, "up", str(WORLD), "none"], check=True)
    try:
        for workload in [name for name in WORKLOADS if name.split()[0] in asked.only.split(",")]:
            with started(workload, asked.sides) as sides:
                for rate in asked.rates:
                    subprocess.run([netlab, "rate", rate], check=True)
                    rounds(sides, 1)
                    results.append(told(workload, rate, rounds(sides, asked.rounds)))
                subprocess.run([netlab, "rate", "none"], check=True)
    finally:
        subprocess.run([netlab, "down"], check=True)
    if asked.out:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
