"""Our planner beside TorchRec's 1.8.0 on the same tables and topology: `make bench-plan`, or

    .venv/bin/python benchmarks/plan.py [TABLESxGPUS ...]        (default: 100x16 300x128)

Tables are log-uniform in 1e3 to 2e7 rows, 32 to 256 wide, with 1 to 100 ids a sample, seed 0; ranks are zionex's, with
the bandwidths that are reached. Prints the seconds of `dlrmx plan` (the whole command) and of TorchRec's plan() (its
imports and the model's construction left out), and rates the plans by both cost models, each with its own estimator:
milliseconds per step of the tables on the busiest rank. Ours is planned twice: for our exchange, and for the exchange
that TorchRec has (a reduce-scatter for cut rows). TorchRec runs in an environment of its own, .venv-torchrec.
"""

import json
import math
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dlrmx.plan.cost import predict
from dlrmx.plan.planner import make_plan
from dlrmx.plan.shards import Kind, Plan, Strip, TablePlan
from dlrmx.plan.style import OURS, Style
from dlrmx.plan.topology import Topology, topology_of
from dlrmx.recipe.load import Loaded, load_recipe

ROOT = Path(__file__).resolve().parent.parent
THEIR_PYTHON = ROOT / ".venv-torchrec" / "bin" / "python"
LOCAL_BATCH = 512
GPUS_PER_NODE = 8
LIKE_TORCHREC = Style(exchange="reduce_scatter")
KINDS: dict[str, Kind] = {"table_column_wise": "column_wise", "grid_shard": "grid"}
THEIR_KINDS = {"grid": "grid_shard"}


@dataclass(frozen=True)
class Case:
    """Tables on GPUs."""

    tables: int
    gpus: int

    def recipe(self) -> dict[str, Any]:
        """The recipe, as its file would say it."""
        drawn = random.Random(0)
        names = [f"t{k:04d}" for k in range(self.tables)]
        rows = {name: int(10 ** drawn.uniform(3, math.log10(2e7))) for name in names}
        dims = {name: 4 * drawn.randint(8, 64) for name in names}
        pooling = {name: drawn.randint(1, 100) for name in names}
        return {
            "dlrmx": 1,
            "name": "bench",
            "data": {
                "kind": "synthetic",
                "rows": 1_000_000_000,
                "zipf": 0,
                "pooling": {name: {"mean": mean, "max": 400} for name, mean in pooling.items() if mean > 1},
            },
            "dense": {"x": {}},
            "features": dict.fromkeys(names),
            "tables": {name: {"rows": rows[name], "dim": dims[name]} for name in names},
            "model": {"kind": "dlrm", "bottom": [128, 64], "top": [64, 1], "interaction": "cat"},
            "optimizer": {"dense": {"kind": "sgd", "lr": 0.1}, "sparse": {"kind": "rowwise_adagrad", "lr": 0.1}},
            "train": {"batch": LOCAL_BATCH * self.gpus, "stop": {"steps": 1}},
            "cluster": {"scheduler": "none", "node": {"kind": "zionex"}, "nodes": self.gpus // GPUS_PER_NODE},
        }


def main(cases: list[Case]) -> None:
    """Plan and rate each case with both."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            _run(case, Path(folder))


def _run(case: Case, folder: Path) -> None:
    file = folder / "bench.yaml"
    file.write_text(yaml.safe_dump(case.recipe(), sort_keys=False))
    dlrmx = Path(sys.executable).with_name("dlrmx")
    command = [*map(str, (dlrmx, "plan", file, "--json", "--out", folder / "plan.json"))]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    our_s = time.perf_counter() - began
    loaded = load_recipe(file)
    topology = topology_of(loaded.profile)
    plans = {
        "ours": Plan.from_json((folder / "plan.json").read_text()),
        "ours, for their exchange": make_plan(loaded.recipe, topology, style=LIKE_TORCHREC),
    }
    answer = _ask_torchrec(case, loaded, topology, plans, folder)
    plans["torchrec"] = _their_plan(answer["plan"], loaded, topology)
    print(f"{case.tables} tables on {case.gpus} GPUs")
    print(f"  dlrmx plan {our_s:.2f} s, TorchRec {answer['seconds']:.1f} s: {answer['seconds'] / our_s:.0f} times")
    print(f"  {'busiest rank, ms':26}{'our exchange':>14}{'theirs, by us':>15}{'by TorchRec':>13}")
    for name, plan in plans.items():
        ratings = [_busiest_ms(plan, loaded, topology, style) for style in (OURS, LIKE_TORCHREC)]
        print(f"  {name:26}{ratings[0]:14.2f}{ratings[1]:15.2f}{answer['ratings'][name]:13.2f}")


def _busiest_ms(plan: Plan, loaded: Loaded, topology: Topology, style: Style) -> float:
    """The tables' milliseconds on the busiest rank."""
    stages = predict(plan, loaded.recipe, topology, style=style).ranks
    return 1000 * max(rank.ids + rank.lookup + rank.vectors + rank.gradients + rank.update for rank in stages)


def _ask_torchrec(
    case: Case, loaded: Loaded, topology: Topology, plans: dict[str, Plan], folder: Path
) -> dict[str, Any]:
    """What TorchRec plans, and how it rates these plans and its own."""
    reached = topology.achieved
    asked = {
        "world": topology.world,
        "ranks_per_node": topology.ranks_per_node,
        "local_batch": LOCAL_BATCH,
        "topology": {
            "hbm_bytes": topology.hbm_bytes,
            "ddr_bytes": topology.ddr_bytes,
            "hbm_rate": topology.hbm_rate * reached.hbm,
            "ddr_rate": topology.ddr_rate * reached.ddr,
            "host_rate": topology.host_rate * reached.host,
            "up_rate": topology.up_rate * reached.all_to_all_up,
            "out_rate": topology.out_rate * reached.all_to_all_out,
        },
        "tables": [
            {
                "name": name,
                "rows": table["rows"],
                "dim": table["dim"],
                "pooling": case.recipe()["data"]["pooling"].get(name, {"mean": 1})["mean"],
                "fp16": False,
            }
            for name, table in case.recipe()["tables"].items()
        ],
        "plans": {name: _as_theirs(plan) for name, plan in plans.items()},
    }
    (folder / "in.json").write_text(json.dumps(asked))
    script = ROOT / "benchmarks" / "torchrec_planner.py"
    command = [*map(str, (THEIR_PYTHON, "-W", "ignore", script, folder / "in.json", folder / "out.json"))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"TorchRec's planner failed:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return answer


def _as_theirs(plan: Plan) -> dict[str, Any]:
    found = {}
    for name, table in plan.tables.items():
        shards = [[r.row_start, r.col_start, r.rows, r.cols, r.rank] for r in table.rectangles(name)]
        if table.kind == "data_parallel":
            shards = [[0, 0, table.rows, table.dim, rank] for rank in range(plan.world)]
        found[name] = {"type": THEIR_KINDS.get(table.kind, table.kind), "shards": shards}
    return found


def _their_plan(plan: dict[str, Any], loaded: Loaded, topology: Topology) -> Plan:
    tables = {}
    for name, table in loaded.recipe.tables.items():
        entry = plan[name]
        kind = KINDS.get(entry["type"], entry["type"])
        strips = () if kind == "data_parallel" else _strips(entry, table.rows)
        tables[name] = TablePlan(table.rows, table.dim, table.dtype, kind, strips=strips)
    return Plan(topology.world, tables, ranks_per_node=topology.ranks_per_node)


def _strips(entry: dict[str, Any], rows: int) -> tuple[Strip, ...]:
    """A strip for each column slice. Their row shards are equal but for the last one, ours differ by a row at most."""
    tier = {"fused": "hbm", "fused_uvm": "uvm", "fused_uvm_caching": "uvm_caching"}[entry["kernel"]]
    slices: dict[tuple[int, int], list[int]] = {}
    for _, col, _, cols, rank in entry["shards"]:
        slices.setdefault((col, col + cols), []).append(rank)
    return tuple(
        Strip(0, rows, first, last, min(ranks), len(ranks), tier, 0.2 if tier == "uvm_caching" else 0.0)  # type: ignore[arg-type]
        for (first, last), ranks in slices.items()
    )


if __name__ == "__main__":
    words = sys.argv[1:] or ["100x16", "300x128"]
    main([Case(*map(int, word.split("x"))) for word in words])
