"""Predicted samples per second of the shapes of Neo's models: `.venv/bin/python benchmarks/papers.py`; minutes.

Prints what docs/planner.md shows: 8 to 128 GPUs of zionex at the published local batch, with the paper's exchange,
overlap and TF32, and with our exchange in its place; the same with tables cut alike on all of them; the band over the
ranges that the recipes state; each constant of the topology 20% down and up; the steps of the optimisation ladder; and
the way of model F from 96 to 24 TB.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from dlrmx.errors import InputError
from dlrmx.plan.cost import predict
from dlrmx.plan.memory import table_bytes
from dlrmx.plan.options import Ask
from dlrmx.plan.planner import first_that_fits, make_plan
from dlrmx.plan.prediction import Prediction
from dlrmx.plan.shards import Kind, Plan
from dlrmx.plan.style import NEO, OURS, Style
from dlrmx.plan.topology import Topology, topology_of
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.schema import Recipe
from dlrmx.recipe.training import TableSharding

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
GPUS = (8, 16, 32, 64, 128)
PARAMETERS = {"a": 793_000_000_000, "f": 12_000_000_000_000, "i": 332_000_000_000}
LOCAL_BATCH = {"a": 512, "f": 512, "i": 2048}
TABLES = {"a": (1_000, 2_000, 4_000), "f": (10, 20, 40), "i": (100, 200, 400)}
POOLING = {"a": (12, 15, 18), "f": (16, 20, 24), "i": (56, 70, 84)}
MFLOP = {"a": (638 / 3, 638), "f": (5 / 3, 5), "i": (60 / 3, 60)}  # of a sample's forward pass
PUBLISHED = {"a": "1.2 M (recalled)", "f": "1.7 M (found, weak)", "i": "3.4 M (recalled)"}
OUR_EXCHANGE = replace(NEO, exchange="touched")
ADAGRAD = "optimizer.sparse.kind=adagrad"
FP32 = "defaults.table.dtype=fp32"
TF32 = "train.precision=fp32"
# With the default of 15% model F fills 98% of what is left, and the paper's exchange needs buffers for every bag.
RESERVE = "sharding.reserve=0.1"


def recipe_of(model: str, gpus: int, *settings: str) -> tuple[Recipe, Topology]:
    """A model at its local batch on so many GPUs. Its rows shrink with them: none of the three fits 8 GPUs whole."""
    numbers = f"generate.{model}.parameters={PARAMETERS[model] * gpus // 128}"
    changes = [f"train.batch={LOCAL_BATCH[model] * gpus}", numbers, TF32, RESERVE, *settings]
    loaded = load_recipe(RECIPES / f"zionex_model_{model}.yaml", changes, nodes=gpus // 8)
    return loaded.recipe, topology_of(loaded.profile)


def planned(model: str, gpus: int, style: Style, *settings: str) -> Prediction:
    """The prediction of the plan that is made for this exchange."""
    recipe, topology = recipe_of(model, gpus, *settings)
    return predict(make_plan(recipe, topology, style=style), recipe, topology, style=style)


def rate(model: str, gpus: int, style: Style, *settings: str) -> float:
    """Samples per second; not a number where no plan fits."""
    try:
        return planned(model, gpus, style, *settings).samples_per_s
    except InputError:
        return math.nan


def million(samples_per_s: float) -> str:
    """Samples per second as the page shows them."""
    return "no plan" if math.isnan(samples_per_s) else f"{samples_per_s / 1e6:.2f} M"


# ------------------------------------------------------------------------------------------- sections


def scaling() -> None:
    """Samples per second over GPUs."""
    print("| model | exchange | 8 | 16 | 32 | 64 | 128 GPUs | efficiency, 8 to 128 | published at 128 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in "afi":
        for words, style in (("the paper's", NEO), ("ours", OUR_EXCHANGE)):
            rates = [rate(model, gpus, style) for gpus in GPUS]
            kept = rates[-1] / rates[0] * GPUS[0] / GPUS[-1]
            cells = " | ".join(map(million, rates))
            print(f"| {model.upper()} | {words} | {cells} | {kept:.0%} | {PUBLISHED[model]} |", flush=True)


def same_cuts() -> None:
    """Samples per second where every table is cut on all numbers of GPUs as in the plan for 128."""
    print("| model | 8 | 16 | 32 | 64 | 128 GPUs | efficiency, 8 to 128 | 16 to 128 |")
    print("|---|---|---|---|---|---|---|---|")
    for model in "afi":
        recipe, topology = recipe_of(model, 128)
        kinds = {name: table.kind for name, table in make_plan(recipe, topology, style=NEO).tables.items()}
        rates = [_rate_of_kinds(model, gpus, kinds) for gpus in GPUS]
        kept = [rates[-1] / rates[at] * GPUS[at] / GPUS[-1] for at in (0, 1)]
        cells = " | ".join([*map(million, rates), *(f"{part:.0%}" for part in kept)])
        print(f"| {model.upper()} | {cells} |", flush=True)


def _rate_of_kinds(model: str, gpus: int, kinds: dict[str, Kind]) -> float:
    """Samples per second where each table is cut in this way."""
    recipe, topology = recipe_of(model, gpus)
    tables = {name: TableSharding(types=[kind]) for name, kind in kinds.items()}
    held = recipe.model_copy(update={"sharding": recipe.sharding.model_copy(update={"tables": tables})})
    try:
        return predict(make_plan(held, topology, style=NEO), held, topology, style=NEO).samples_per_s
    except InputError:
        return math.nan


def bands() -> None:
    """The least and the most over all corners of the stated ranges, at 128 GPUs."""
    print("| model | least | as the recipe says | most | published |\n|---|---|---|---|---|")
    for model in "afi":
        point = rate(model, 128, NEO)
        rates = [point, *(rate(model, 128, NEO, *corner) for corner in corners(model))]
        found = [one for one in rates if not math.isnan(one)]
        least, most = min(found), max(found)
        shown = " | ".join(map(million, (least, point, most)))
        print(f"| {model.upper()} | {shown} | {PUBLISHED[model]} |", flush=True)


def corners(model: str) -> Iterator[tuple[str, ...]]:
    """Settings at the ends of the ranges: tables, look-ups, operations, and the precision of matrix products."""
    ends = (TABLES[model][::2], POOLING[model][::2], MFLOP[model], ("fp32", "bf16"))
    for tables, pooling, mflop, precision in product(*ends):
        yield (
            f"generate.{model}.tables={tables}",
            f"generate.{model}.pooling.mean={pooling}",
            f"train.precision={precision}",
            *widths(model, tables, mflop),
        )


def widths(model: str, tables: int, mflop: float) -> tuple[str, str]:
    """The MLPs with so many operations: all layers scaled alike, then the projection that fills what is left."""
    raw, _ = recipe_of(model, 128)
    share = math.sqrt(mflop / MFLOP[model][1])
    bottom = [round(width * share) for width in raw.model.bottom]
    top = [round(width * share) for width in raw.model.top[1:-1]]
    dim = sum(table.dim for table in raw.tables.values()) / len(raw.tables)
    hidden = sum(m * n for m, n in zip([16, *bottom], bottom, strict=False))
    hidden += sum(m * n for m, n in zip(top, [*top[1:], 1], strict=True))
    projection = max(4, round((mflop * 5e5 - hidden) / (tables * dim + bottom[-1] + top[0])))
    return f"model.bottom={bottom}", f"model.top={[projection, *top, 1]}"


def sensitivity() -> None:
    """Samples per second at 128 GPUs where one constant is 20% smaller or larger; the plan stays."""
    print("| constant | A -20% | A +20% | F -20% | F +20% | I -20% | I +20% |\n|---|---|---|---|---|---|---|")
    rows: dict[str, list[str]] = {}
    for model in "afi":
        recipe, topology = recipe_of(model, 128)
        plan = make_plan(recipe, topology, style=NEO)
        before = predict(plan, recipe, topology, style=NEO).samples_per_s
        for name, (less, more) in variations(topology).items():
            changed = [predict(plan, recipe, other, style=NEO).samples_per_s / before - 1 for other in (less, more)]
            rows.setdefault(name, []).extend(f"{change:+.1%}" for change in changed)
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")


def variations(topology: Topology) -> dict[str, tuple[Topology, Topology]]:
    """Each rate, latency and share of the topology, 20% down and up."""

    def changed(values: Any, name: str, factor: float) -> Any:
        return replace(values, **{name: getattr(values, name) * factor})

    found = {}
    for name in (field.name for field in fields(topology)):
        if name.endswith(("_rate", "_s", "_flops")):
            found[name] = (changed(topology, name, 0.8), changed(topology, name, 1.2))
    for name in (field.name for field in fields(topology.achieved)):
        shares = [changed(topology.achieved, name, factor) for factor in (0.8, 1.2)]
        found[f"achieved.{name}"] = (replace(topology, achieved=shares[0]), replace(topology, achieved=shares[1]))
    return found


def ladder() -> None:
    """Model A at 128 GPUs, one step after the other."""
    plain = replace(NEO, forward_bytes=4, backward_bytes=4, message_bytes=4)
    recipe, topology = recipe_of("a", 128, FP32)
    fits = first_that_fits(Ask(recipe, topology, None, plain))
    assert isinstance(fits, Plan)
    steps = {
        "a plan that fits, fp32": predict(fits, recipe, topology, style=plain),
        "balanced": planned("a", 128, plain, FP32),
        "fp16 tables": planned("a", 128, plain),
        "vectors in fp16, gradients in bf16": planned("a", 128, NEO),
        "global batch 256 Ki": planned("a", 128, NEO, "train.batch=262144"),
    }
    print("| step | samples/s | gain |\n|---|---|---|")
    before = None
    for words, prediction in steps.items():
        now = prediction.samples_per_s
        print(f"| {words} | {million(now)} | {'' if before is None else f'{now / before - 1:+.0%}'} |")
        before = now


def terabytes() -> None:
    """Model F's bytes, and whether 16 nodes hold them."""
    print("| tables | optimizer | bytes | on 16 nodes |\n|---|---|---|---|")
    for words, settings in (
        ("fp32 | Adagrad", (FP32, ADAGRAD)),
        ("fp32 | row-wise Adagrad", (FP32,)),
        ("fp16 | row-wise Adagrad", ()),
    ):
        recipe, topology = recipe_of("f", 128, *settings)
        held = sum(table_bytes(table, recipe.optimizer.sparse.kind) for table in recipe.tables.values())
        print(f"| {words} | {held / 1e12:.1f} TB | {_verdict(recipe, topology)} |", flush=True)


def _verdict(recipe: Recipe, topology: Topology) -> str:
    try:
        plan = make_plan(recipe, topology, style=OURS)
    except InputError as error:
        return error.problems[0].what.partition(":")[0] + ": no plan fits"
    memory = predict(plan, recipe, topology, style=OURS).memory
    device, host = (sum(values) / 1e12 for values in zip(*((m.total_bytes, m.host_bytes) for m in memory), strict=True))
    return f"fits: {device:.1f} TB in device memory, {host:.1f} TB in the hosts'"


SECTIONS: dict[str, Any] = {
    "scaling": scaling,
    "same_cuts": same_cuts,
    "bands": bands,
    "sensitivity": sensitivity,
    "ladder": ladder,
    "terabytes": terabytes,
}

if __name__ == "__main__":
    for section in sys.argv[1:] or SECTIONS:
        print(f"\n### {section}\n")
        SECTIONS[section]()
