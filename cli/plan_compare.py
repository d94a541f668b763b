"""Two plans of one recipe side by side: what each is predicted to cost, and the tables that they cut differently."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrmx.units import format_bytes, format_count, format_short

from .output import print_json, print_result, table
from .plan_text import COSTLIEST_SHOWN, holders, tiers
from .planned import Planned

if TYPE_CHECKING:
    from dlrmx.recipe.load import Loaded


def show(loaded: "Loaded", files: tuple[Path, Path], *, json: bool) -> None:
    """Both plans, each on as many ranks as it is for. Raises InputError where a file is no plan of the recipe."""
    from dlrmx.plan.load import load_plan

    from . import start
    from .plan import facts_of, prediction_json, with_prediction

    facts = facts_of(start.prepared(loaded))
    both = [with_prediction(load_plan(path, loaded.recipe), loaded, facts) for path in files]
    if json:
        print_json(plans=[{"file": str(path), **prediction_json(one)} for path, one in zip(files, both, strict=True)])
    else:
        print_result(f"{_costs(files, both)}\n\n{_differences(files, both)}")


def _costs(files: tuple[Path, Path], both: list[Planned]) -> str:
    columns = [_facts(planned) for planned in both]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    header = ["", *(path.name for path in files)]
    return table(header, rows, right=header[1:])


def _facts(planned: Planned) -> dict[str, str]:
    prediction = planned.prediction
    found: dict[str, Any] = {
        "ranks": f"{planned.plan.world:,}",
        "step": format_short(prediction.step_s),
        "samples/s": format_count(prediction.samples_per_s),
        "busiest rank / mean": f"{prediction.imbalance:.2f}",
        "fullest rank": format_bytes(prediction.memory[planned.fullest].total_bytes),
        "host memory": format_bytes(max(memory.host_bytes for memory in prediction.memory)),
    }
    for name, seconds in vars(prediction.exposed).items():
        found[f"{name.replace('_', ' ')} adds"] = format_short(seconds)
    for link, words in (("up", "sent in nodes"), ("out", "sent between nodes"), ("host", "over host links")):
        found[words] = format_bytes(sum(entry.num_bytes for entry in prediction.traffic if entry.link == link))
    return found


def _differences(files: tuple[Path, Path], both: list[Planned]) -> str:
    first, second = (planned.plan.tables for planned in both)
    differ = [name for name in first if first[name] != second[name]]
    if not differ:
        return f"all {len(first):,} tables are cut alike and lie on the same ranks"
    costs = both[0].prediction.tables
    shown = sorted(differ, key=lambda name: -costs[name].total_s)[:COSTLIEST_SHOWN]
    rows = [[name, *(_cut_text(planned, name) for planned in both)] for name in shown]
    folded = f" (the {len(shown)} costliest are shown)" if len(shown) < len(differ) else ""
    lines = table(["table", *(path.name for path in files)], rows)
    return f"{lines}\n{len(differ):,} of {len(first):,} tables lie differently{folded}"


def _cut_text(planned: Planned, name: str) -> str:
    cut = planned.plan.tables[name]
    return f"{cut.kind} {tiers(cut)} on {holders(cut, planned.plan.world)}"
