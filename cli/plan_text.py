"""How a plan is shown: verdict, ranks, tables, the step's time and its traffic, in lines of 80 columns."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from textwrap import fill
from typing import TYPE_CHECKING

from dlrmx.units import format_bytes, format_count, format_duration, format_short

from .output import WIDTH, pairs, table
from .planned import UNCOUNTED, Planned, hours_per_epoch

if TYPE_CHECKING:
    from dlrmx.plan.prediction import RankMemory, Stages
    from dlrmx.plan.shards import Strip, TablePlan

MOST_RANKS = 16  # each shown; of more, some
MOST_TABLES = 40  # each shown; of more, the costliest
COSTLIEST_SHOWN = 20
MOST_OFFSETS = 4
TOP = 5
BAR = 16
BY_NODE = "by node"
MEMORY_PARTS = {
    "weights_bytes": "tables",
    "state_bytes": "their optimizer state",
    "dense_bytes": "dense part and replicas",
    "activation_bytes": "activations",
    "exchange_bytes": "exchange",
    "pipeline_bytes": "batches read ahead",
    "host_weights_bytes": "tables in host memory",
    "host_state_bytes": "their state there",
}


def plan_text(planned: Planned) -> str:
    """Everything, the verdict first."""
    parts = [_verdict(planned), _ranks(planned), _tables(planned), _step(planned), _traffic(planned)]
    return "\n\n".join([*parts, _costliest(planned), *planned.plan.notes])


def tables_seconds(stages: "Stages") -> float:
    """What a rank's tables take of a step."""
    return stages.ids + stages.lookup + stages.vectors + stages.gradients + stages.update


# ------------------------------------------------------------------------------------------- verdict


def _verdict(planned: Planned) -> str:
    topology, prediction = planned.topology, planned.prediction
    ranks = f"{topology.world} {'GPUs' if topology.device == 'cuda' else 'processes'}"
    nodes = f"{topology.nodes} node{'s' if topology.nodes > 1 else ''}"
    most = prediction.memory[planned.fullest].total_bytes
    hours = hours_per_epoch(planned)
    epoch = "" if hours is None else f"; an epoch takes {format_duration(3600 * hours)}"
    host = max(memory.host_bytes for memory in prediction.memory)
    beside = f"\n         and {format_bytes(host)} of host memory" if host else ""
    return pairs(
        {
            "fits" if most <= planned.usable_bytes else "FITS NOT": f"on {ranks} of {nodes}",
            "memory": f"{format_bytes(most)} on the fullest rank, which may fill {format_bytes(planned.usable_bytes)}"
            + beside,
            "step": f"{format_short(prediction.step_s)} predicted, {format_count(prediction.samples_per_s)} samples/s"
            + epoch,
            "balance": f"the tables take {prediction.imbalance:.2f} x the mean time on the busiest rank",
        }
    )


# --------------------------------------------------------------------------------------------- ranks


def _ranks(planned: Planned) -> str:
    """Memory and tables' time, bars beside the largest; then where the fullest rank's memory goes."""
    memory = [use.total_bytes for use in planned.prediction.memory]
    seconds = [tables_seconds(stages) for stages in planned.prediction.ranks]
    chosen = _chosen(memory, seconds)
    rows = [
        [
            name,
            _bar(memory[rank], max(memory)),
            format_bytes(memory[rank]),
            _bar(seconds[rank], max(seconds)),
            format_short(seconds[rank]),
        ]
        for name, rank in chosen.items()
    ]
    fullest = planned.prediction.memory[planned.fullest]
    kept = f"{planned.reserve:.0%} of a rank's memory is kept free (sharding.reserve)"
    return "\n".join(
        [
            table(["rank", "memory", "", "tables' time", ""], rows),
            f"of rank {planned.fullest}'s memory\n    {_parts_text(fullest)}",
            kept,
        ]
    )


def _chosen(memory: Sequence[float], seconds: Sequence[float]) -> dict[str, int]:
    """Which ranks are shown, by what they are called: all, or the extremes and medians of many."""
    if len(memory) <= MOST_RANKS:
        return {str(rank): rank for rank in range(len(memory))}
    chosen = {}
    for what, values in (("memory", memory), ("time", seconds)):
        order = sorted(range(len(values)), key=lambda rank: (-values[rank], rank))
        for word, place in (("most", 0), ("median", len(order) // 2), ("least", -1)):
            chosen[f"{word} {what}: {order[place]}"] = order[place]
    return chosen


def _bar(value: float, largest: float) -> str:
    return "█" * (round(BAR * value / largest) if largest > 0 else 0)


def _parts_text(use: "RankMemory") -> str:
    parts = [(getattr(use, name), what) for name, what in MEMORY_PARTS.items()]
    return "\n    ".join(wrapped([f"{what} {format_bytes(size)}" for size, what in parts if size]))


def wrapped(parts: Sequence[str]) -> list[str]:
    """Parts side by side, in lines that fit behind an indentation of 4."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 2 <= WIDTH - 4:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return lines


# -------------------------------------------------------------------------------------------- tables


def _tables(planned: Planned) -> str:
    plan, costs = planned.plan, planned.prediction.tables
    names = list(plan.tables)
    folded = ""
    if len(names) > MOST_TABLES:
        kinds = Counter(cut.kind for cut in plan.tables.values())
        names = sorted(names, key=lambda name: (-costs[name].total_s, name))[:COSTLIEST_SHOWN]
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        text = f"the {len(names)} costliest of {len(plan.tables):,} tables ({counts}); --json has all"
        folded = "\n" + fill(text, WIDTH, subsequent_indent=4 * " ")
    header = ["table", "rows", "dim", "dtype", "type", "tier", "ranks", "bytes"]
    rows = [_table_row(planned, name) for name in names]
    lines = table(header, rows, right=["rows", "dim", "bytes"]).split("\n")
    found = [lines[0]]
    for name, line in zip(names, lines[1:], strict=True):
        found += [line, *_offsets(plan.tables[name])]
    if any(plan.tables[name].route == "by_node" for name in names):
        found.append(f"{BY_NODE}: sums are added up inside a node before they travel")
    return "\n".join(found) + folded


def _table_row(planned: Planned, name: str) -> list[str]:
    cut = planned.plan.tables[name]
    copies = planned.plan.world if cut.kind == "data_parallel" else 1
    return [
        name,
        f"{cut.rows:,}",
        str(cut.dim),
        cut.dtype,
        cut.kind,
        tiers(cut),
        holders(cut, planned.plan.world),
        format_bytes(planned.table_bytes[name] * copies),
    ]


def tiers(cut: "TablePlan") -> str:
    """Of device memory `hbm`; of a cache the part of the rows that it holds."""
    found = dict.fromkeys(
        f"cache {strip.cache_ratio:.0%}" if strip.tier == "uvm_caching" else strip.tier for strip in cut.strips
    )
    return "+".join(found) or "hbm"


def holders(cut: "TablePlan", world: int) -> str:
    if not cut.strips:
        return "all"
    held = {rank for strip in cut.strips for rank in range(strip.first_rank, strip.first_rank + strip.num_ranks)}
    return "all" if len(held) == world and world > 1 else ranges(sorted(held))


def ranges(ranks: Sequence[int]) -> str:
    """Ranks as runs: [0, 1, 2, 5] -> '0-2, 5'; of many runs the first ones."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:MOST_OFFSETS]]
    more = f" +{len(runs) - MOST_OFFSETS}" if len(runs) > MOST_OFFSETS else ""
    return ", ".join(shown) + more


def _offsets(cut: "TablePlan") -> list[str]:
    """Where the pieces of a cut table begin, and which way its sums go."""
    found = []
    if len(columns := sorted({strip.col_start for strip in cut.strips})) > 1:
        found.append(f"columns from {_some(columns)}")
    if len(rows := _row_starts(cut.strips)) > 1:
        found.append(f"rows from {_some(rows)}")
    if cut.route == "by_node":
        found.append(BY_NODE)
    return [f"    {line}" for line in wrapped(found)]


def _row_starts(strips: "Sequence[Strip]") -> list[int]:
    return sorted({start for strip in strips for start in strip.row_cuts()[:-1]})


def _some(offsets: Sequence[int]) -> str:
    """The first offsets and the last."""
    if len(offsets) <= MOST_OFFSETS:
        return ", ".join(f"{offset:,}" for offset in offsets)
    first = ", ".join(f"{offset:,}" for offset in offsets[: MOST_OFFSETS - 1])
    return f"{first}, ... {offsets[-1]:,}"


# ------------------------------------------------------------------------------------------ the step


def _step(planned: Planned) -> str:
    """Each stage on the slowest rank, and how much of it no other stage hides; what the prediction does not cover."""
    prediction = planned.prediction
    exposed = prediction.exposed
    longest = max(getattr(exposed, field.name) for field in fields(exposed))
    rows = [
        [
            field.name.replace("_", " "),
            format_short(getattr(prediction.slowest, field.name)),
            format_short(getattr(exposed, field.name)),
            _bar(getattr(exposed, field.name), longest),
        ]
        for field in fields(exposed)
    ]
    rows.append(["step", "", format_short(prediction.step_s), ""])
    lines = [table(["stage", "slowest rank", "adds", ""], rows, right=["slowest rank", "adds"])]
    lines += [f"so short a step takes longer: {UNCOUNTED}"] if planned.short else []
    lines += ["exchange.chunks and exchange.messages change this; they are not counted"] if planned.chunked else []
    return "\n".join(lines)


def _traffic(planned: Planned) -> str:
    """Bytes per step over all ranks, by what travels and over which link."""
    sent = {(entry.cargo, entry.link): entry.num_bytes for entry in planned.prediction.traffic if entry.num_bytes}
    if not sent:
        return "no bytes are exchanged"
    cargos = list(dict.fromkeys(cargo for cargo, _ in sent))
    cells = [
        [cargo.replace("_", " "), *(format_bytes(sent.get((cargo, link), 0)) for link in ("up", "out", "host"))]
        for cargo in cargos
    ]
    header = ["bytes per step, all ranks", "in a node", "between nodes", "host"]
    return table(header, cells, right=header[1:])


def _costliest(planned: Planned) -> str:
    costs = planned.prediction.tables
    total = sum(cost.total_s for cost in costs.values()) or 1.0
    names = sorted(costs, key=lambda name: (-costs[name].total_s, name))[:TOP]
    rows = [
        [
            name,
            planned.plan.tables[name].kind,
            format_short(costs[name].total_s),
            f"{costs[name].total_s / total:.0%}",
            format_short(costs[name].largest_s),
        ]
        for name in names
    ]
    header = ["costliest tables", "type", "all ranks", "share", "busiest rank"]
    return table(header, rows, right=header[2:])
