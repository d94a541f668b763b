"""Tables cut in the forms chosen, and what each strip costs the ranks."""

from dataclasses import dataclass

import numpy as np

from dlrmx.plan.options import Options
from dlrmx.plan.pieces import DEVICE_BYTES, HOST_BYTES, STAGES, Column, all_reduce_bytes, replicas
from dlrmx.plan.place import Bins
from dlrmx.plan.rates import all_reduce_seconds
from dlrmx.plan.spread import Strips, make_strips, on_ranks, strip_costs
from dlrmx.plan.workload import Floats, Ints


@dataclass(frozen=True)
class Cut:
    """All tables cut in the forms chosen, and what each strip costs a rank."""

    options: Options
    form: Ints  # (T,)
    strips: Strips
    spans: list[tuple[int, int, int, int]]  # rows and columns of each strip
    costs: Floats  # (S, C) of the rank that gets most of a strip's rows
    base: Bins  # ranks with all that needs no decision


def cut_tables(options: Options, form: Ints) -> Cut:
    """The tables in these forms, and the ranks with what lies on all of them."""
    ask, topology = options.ask, options.ask.topology
    world, optimizer = topology.world, ask.recipe.optimizer.sparse.kind
    rows: list[tuple[int, int, int, int, int, float, bool]] = []
    spans: list[tuple[int, int, int, int]] = []
    for index, table in enumerate(ask.recipe.tables.values()):
        chosen = options.forms[form[index]]
        if chosen.kind == "data_parallel":
            continue
        ranks, by_node = chosen.ranks(topology), chosen.route == "by_node"
        for first, last, begin, end, tier, ratio in chosen.strips(table.rows, table.dim):
            rows.append((index, last - first, end - begin, ranks, tier, ratio, by_node))
            spans.append((first, last, begin, end))
    strips = make_strips(rows)
    larger, smaller = strip_costs(strips, options.workload, topology, optimizer, ask.style)
    everywhere = np.flatnonzero(strips.ranks == world)
    own = on_ranks(
        strips.only(everywhere),
        np.zeros(len(everywhere), dtype=np.int64),
        larger[everywhere],
        smaller[everywhere],
        world,
    )
    more = (strips.rows % np.maximum(strips.ranks, 1))[:, None]
    owner = (more * larger + (strips.ranks[:, None] - more) * smaller).sum(axis=0)
    copied = np.array([options.forms[one].kind == "data_parallel" for one in form], dtype=bool)
    replica = replicas(options.workload, topology, optimizer)[copied]
    reduced = all_reduce_seconds(all_reduce_bytes(options.workload)[copied].sum(), topology, ask.style)
    seconds = own[:, STAGES].sum(axis=1) + owner[Column.OWNER_IDS] + owner[Column.OWNER_VECTORS]
    device = own[:, DEVICE_BYTES].sum(axis=1) + owner[Column.OWNER_BYTES] + replica[:, DEVICE_BYTES].sum()
    base = Bins(
        seconds + replica[:, STAGES].sum() + float(reduced),
        options.free_bytes - device,
        ask.usable_host_bytes - own[:, HOST_BYTES].sum(axis=1),
    )
    return Cut(options, form, strips, spans, larger, base)
