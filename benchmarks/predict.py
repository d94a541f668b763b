"""Predicted beside measured, on this machine: `.venv/bin/python benchmarks/predict.py [ROUNDS] [WORKLOAD ...]`.

A round measures the machine (`dlrmx clusters measure`), then trains six workloads for some steps each, whose plans are
predicted from what was just measured. Prints for each workload the median over the rounds (5) of the predicted and the
measured step, their ratio, and the same of memory: what the fullest worker holds beyond one that has built nothing.
All constants come from the measurement; nothing is fitted to a workload. Wants a quiet machine: two minutes a round.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

DLRMX = str(Path(sys.executable).with_name("dlrmx"))
ROUNDS = 5
STEPS = 60
OPTIMIZER = {"dense": {"kind": "adagrad", "lr": 0.01}, "sparse": {"kind": "rowwise_adagrad", "lr": 0.01}}


def tables(count: int, rows: int, dim: tuple[int, float, int], pooling: float = 1.0) -> dict[str, Any]:
    """A group of generated tables; dim is (least, mean, most)."""
    least, mean, most = dim
    pools = {"mean": pooling, "spread": 0.5} if pooling > 1 else {"mean": 1}
    return {"tables": count, "rows": rows, "dim": {"min": least, "mean": mean, "max": most}, "pooling": pools}


# name -> (tables, sharding type, batch, bottom, top, interaction)
WORKLOADS: dict[str, tuple[dict[str, Any], str, int, list[int], list[int], str]] = {
    "dense-bound": (tables(8, 200_000, (32, 32, 32)), "table_wise", 2_048, [512, 512, 32], [1024, 1024, 512, 1], "cat"),
    "multi-hot": (tables(8, 2_000_000, (64, 64, 64), 30), "table_wise", 2_048, [64, 64], [64, 1], "dot"),
    "many-small": (tables(100, 1_000_000, (8, 16, 32)), "table_wise", 4_096, [64, 64], [64, 1], "cat"),
    "few-wide": (tables(4, 400_000, (256, 256, 256), 4), "column_wise", 8_192, [64, 256], [64, 1], "dot"),
    "row-wise": (tables(12, 3_000_000, (32, 32, 32)), "row_wise", 16_384, [64, 32], [64, 1], "dot"),
    "data-parallel": (tables(12, 40_000, (32, 32, 32)), "data_parallel", 16_384, [64, 32], [64, 1], "dot"),
}


def recipe(name: str) -> dict[str, Any]:
    """A workload as its file says it."""
    group, kind, batch, bottom, top, interaction = WORKLOADS[name]
    digits = len(str(group["tables"] - 1))
    names = [f"t{k:0{digits}d}" for k in range(group["tables"])]
    return {
        "dlrmx": 1,
        "name": name,
        "data": {"kind": "synthetic", "rows": 20 * batch},
        "dense": {f"x{k}": {} for k in range(4)},
        "generate": {"t": group},
        "model": {"kind": "dlrm", "bottom": bottom, "top": top, "interaction": interaction},
        "optimizer": OPTIMIZER,
        "train": {"batch": batch, "stop": {"steps": STEPS}, "evaluate": {"at_end": None}},
        "sharding": {"tables": {table: {"types": [kind]} for table in names}},
        "log": {"every": {"steps": 5}},
    }


def main(rounds: int, names: list[str]) -> None:
    """All rounds, and the medians after each."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name in names:
            files[name] = Path(folder) / f"{name}.yaml"
            files[name].write_text(yaml.safe_dump(recipe(name), sort_keys=False))
        for number in range(1, rounds + 1):
            _dlrmx(folder, "clusters", "measure")
            for name in names:
                run = f"{name}-{number}"
                _dlrmx(folder, "train", str(files[name]), "--name", run)
                (costs,) = json.loads(_dlrmx(folder, "report", run, "--json"))["costs"]
                seen[name].append(costs)
            print(f"after {number} of {rounds} rounds\n{_shown(seen)}", flush=True)


def _dlrmx(folder: str, *words: str) -> str:
    """Run a command with profiles, runs and registry of its own."""
    own = {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_STATE_HOME": f"{folder}/state"}
    done = subprocess.run([DLRMX, *words], cwd=folder, env={**os.environ, **own}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"dlrmx {' '.join(words)} failed:\n{done.stderr}")
    return done.stdout


def _shown(seen: dict[str, list[dict[str, float]]]) -> str:
    lines = [f"{'workload':15}{'step, ms':>10}{'predicted':>11}{'ratio':>7}{'MiB':>9}{'predicted':>11}{'ratio':>7}"]
    for name, rounds in seen.items():
        step, foretold, held, planned = (
            statistics.median(costs[key] for costs in rounds)
            for key in ("step_s", "predicted_step_s", "memory_bytes", "predicted_memory_bytes")
        )
        ratios = [costs["predicted_step_s"] / costs["step_s"] for costs in rounds]
        ratio = statistics.median(ratios)
        lines.append(
            f"{name:15}{1000 * step:10.1f}{1000 * foretold:11.1f}{ratio:7.2f}"
            f"{held / 2**20:9.0f}{planned / 2**20:11.0f}{planned / held:7.2f}"
            f"   steps: {' '.join(f'{one:.2f}' for one in ratios)}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    words = sys.argv[1:]
    count = int(words.pop(0)) if words and words[0].isdecimal() else ROUNDS
    main(count, words or list(WORKLOADS))
