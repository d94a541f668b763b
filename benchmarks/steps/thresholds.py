"""What thresholds cost on workload 1 without a link limit, on two gloo ranks of one thread.

    .venv/bin/python benchmarks/steps/thresholds.py [--rounds 8] [--sparsity 0.99]

Three sides in turn: none, thresholds set once, and thresholds set in every step, which is exact top-k. The difference
between the last two is a refresh. Selecting and packing is what only thresholds need, by a stopwatch, without waits.
"""

import argparse
import json
import statistics
import sys
from contextlib import ExitStack

from compare import TURN, WARM, WORLD, ours, shown, side, spread

WORKLOAD = "1 criteo one-hot"
ONCE = 1_000_000  # steps


def exchange(sparsity: float, every: int) -> str:
    each = {"sparsity": sparsity, "every": every}
    return json.dumps({"threshold": {"dense": each, "forward": each, "backward": each}})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--sparsity", type=float, default=0.99)
    asked = parser.parse_args()
    with ExitStack() as stack:
        none = stack.enter_context(ours(WORKLOAD, {}))
        once, always = (
            stack.enter_context(
                side(name, sys.executable, "thresholds_side.py", WORKLOAD, exchange(asked.sparsity, every))
            )
            for name, every in (("once", ONCE), ("always", 1))
        )
        sides = (none, once, always)
        for each in sides:
            each.run(WARM)
        rounds = [[each.run(TURN) for each in sides] for _ in range(asked.rounds)]
        packing = [seconds / WORLD for seconds in once.losses[WARM:]]
    without, with_thresholds, top_k = ([times[k] for times in rounds] for k in range(3))
    refresh = spread([(b - a) / a / 1000 for _, a, b in rounds])
    print(f"a step: without {1e3 * statistics.median(without):.0f} ms, ", end="")
    print(f"with thresholds {1e3 * statistics.median(with_thresholds):.0f}, top-k {1e3 * statistics.median(top_k):.0f}")
    print(f"with thresholds / without: {shown(spread([b / a for a, b, _ in rounds]))}")
    print(f"selecting and packing: {statistics.median(packing) / statistics.median(with_thresholds):.1%} of a step")
    print(f"a refresh in 1,000 steps: {refresh['median']:.3%} of them ({refresh['low']:.3%} to {refresh['high']:.3%})")
    print(f"top-k in every step / with thresholds: {shown(spread([c / b for _, b, c in rounds]))}")


if __name__ == "__main__":
    main()
