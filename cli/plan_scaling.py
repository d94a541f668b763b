"""What more nodes would bring: one line for each number of nodes, and ways out where nothing fits."""

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from dlrmx.errors import InputError
from dlrmx.units import format_count, format_duration, format_short

from .output import WIDTH, print_json, print_result, say, table
from .planned import UNCOUNTED, Planned, hours_per_epoch

if TYPE_CHECKING:
    from dlrmx.recipe.load import Loaded

Outcome = Planned | InputError


def show(sizes: "list[Loaded]", *, json: bool) -> None:
    """The scaling table of one recipe on these numbers of nodes."""
    from dlrmx.recipe.clusters import world_size

    from .plan import predicted

    rows, short = [], False
    for done, loaded in enumerate(sizes):
        say(f"plan {done + 1} of {len(sizes)}: nodes {loaded.profile.nodes:,}")
        outcome: Outcome
        try:
            outcome = predicted(loaded)
        except InputError as error:
            outcome = error
        short = short or isinstance(outcome, Planned) and outcome.short
        rows.append(_row(loaded.profile.nodes, world_size(loaded.profile), outcome))
    _add_efficiency(rows)
    if json:
        print_json(batch=sizes[0].recipe.train.batch, sizes=rows)
    else:
        about = _about(sizes[0].recipe.train.batch, short=short)
        print_result("\n\n".join(filter(None, [_table(rows), _out(rows), about])))


def _row(nodes: int, ranks: int, outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {"nodes": nodes, "ranks": ranks, "fits": isinstance(outcome, Planned)}
    if isinstance(outcome, Planned):
        prediction = outcome.prediction
        return row | {
            "step_s": prediction.step_s,
            "samples_per_s": prediction.samples_per_s,
            "hours_per_epoch": hours_per_epoch(outcome),
        }
    problem = outcome.problems[0]
    return row | {"problem": problem.what, "ways_out": _ways_out(problem.hint)}


def _ways_out(hint: str) -> list[str]:
    """The lines of an error's list of possible solutions."""
    return [line.strip().removeprefix("- ") for line in hint.split("\n") if line.strip().startswith("- ")]


def _add_efficiency(rows: list[dict[str, Any]]) -> None:
    """Samples per second and rank, beside the first size that fits."""
    first = next((row for row in rows if row["fits"]), None)
    for row in rows:
        if row["fits"] and first:
            per_rank = row["samples_per_s"] / row["ranks"]
            row["efficiency"] = per_rank / (first["samples_per_s"] / first["ranks"])


def _table(rows: list[dict[str, Any]]) -> str:
    header = ["nodes", "ranks", "fits", "step", "samples/s", "efficiency", "epoch"]
    cells = [_cells(row) for row in rows]
    if not any(row.get("hours_per_epoch") for row in rows):  # how many rows the data have is not known yet
        header, cells = header[:-1], [line[:-1] for line in cells]
    return table(header, cells, right=[name for name in header if name != "fits"])


def _cells(row: dict[str, Any]) -> list[str]:
    start = [f"{row['nodes']:,}", f"{row['ranks']:,}"]
    if not row["fits"]:
        return [*start, "no", "", "", "", ""]
    hours = row["hours_per_epoch"]
    return [
        *start,
        "yes",
        format_short(row["step_s"]),
        format_count(row["samples_per_s"]),
        f"{row['efficiency']:.0%}",
        "" if hours is None else format_duration(3600 * hours),
    ]


def _out(rows: list[dict[str, Any]]) -> str:
    """Why some sizes have no plan, and what would give them one."""
    lines = []
    for row in rows:
        if not row["fits"]:
            lines += _wrapped(f"{row['nodes']} node{'s' if row['nodes'] > 1 else ''}: ", row["problem"])
            lines += [line for way in row["ways_out"] for line in _wrapped("    - ", way)]
    return "\n".join(lines)


def _wrapped(opening: str, text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=opening, subsequent_indent=" " * (len(opening) - len(opening.lstrip()) + 4))


def _about(batch: int, *, short: bool) -> str:
    about = f"The global batch is {batch:,} at each size;\nefficiency is per rank, beside the first size that fits."
    if short:
        about += f"\nThe shortest steps take longer: {UNCOUNTED}."
    return about
