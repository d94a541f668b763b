"""Puts what quality.py found into docs/thresholds.md, between its marks, and draws docs/thresholds.svg.

    .venv/bin/python benchmarks/quality_page.py RESULTS...

A number is the change of the test split's NE against the same seed without thresholds, in per cent, as a mean over the
seeds; behind it stands how many times fewer bytes travel.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.quality import EVERY, PLACES, SPARSITIES, WORLD, Case

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- by benchmarks/quality_page.py -->", "<!-- end -->"
NAMES = {
    "thresholds": "thresholds",
    "each step": "set in each step (top-k)",
    "random-k": "random-k",
    "forgetful": "no error feedback",
    "unmasked": "gradients of all entries",
}
FORMATS = "narrower formats"
COLOURS = {
    "thresholds": "#1f77b4",
    "each step": "#ff7f0e",
    "random-k": "#7f7f7f",
    "forgetful": "#d62728",
    "unmasked": "#2ca02c",
    FORMATS: "#9467bd",
}
CONTROLS = {
    "frozen": "control: dense part frozen",
    "dropped": "control: the tables' gradients dropped",
    "mean": "control: vectors replaced by their mean",
}
PLACE_NAMES = {
    "dense": "gradients of the dense part",
    "forward": "vectors",
    "backward": "gradients of vectors",
    "both": "vectors and their gradients",
}
PANELS = {
    "gradients of the dense part": ("dense",),
    "vectors and their gradients (dashed: vectors alone)": ("both", "forward"),
}
WIDTH, HEIGHT = 360, 210  # pixels of a panel
MOST_TIMES, LEAST_CHANGE, MOST_CHANGE, FLAT = 160, -0.2, 30.0, 0.1


@dataclass(frozen=True)
class Point:
    """One case beside the same seed's plain training: change of the test NE in per cent, times fewer bytes."""

    case: Case
    change: float
    fewer_dense: float
    fewer_boundary: float  # vectors and their gradients

    @property
    def place(self) -> str | None:
        """What is thresholded, where that is one row of the table."""
        asked = tuple(name for name in ("dense", "forward", "backward") if getattr(self.case, name) is not None)
        same = len({getattr(self.case, name) for name in asked}) == 1
        return next((place for place, names in PLACES.items() if same and names == asked), None)

    @property
    def sparsity(self) -> float:
        return max(self.case.dense or 0, self.case.forward or 0, self.case.backward or 0)

    @property
    def method(self) -> str | None:
        """Its row of the table, if it stands in one."""
        case = self.case
        if case.values != "fp32" or case.vectors or case.world != WORLD or self.place is None:
            return None
        if case.method == "thresholds" and case.every == 1:
            return "each step"
        return case.method if case.every == EVERY[case.task] else None

    @property
    def drawn(self) -> str | None:
        """Its curve, if it is in the plot."""
        narrow = self.case.values != "fp32" or self.case.vectors is not None
        return FORMATS if narrow and self.place is None and not self.sparsity else self.method

    @property
    def fewer(self) -> float:
        return self.fewer_dense if self.place == "dense" else self.fewer_boundary


def read(files: Iterable[Path]) -> list[Point]:
    """All points of some files of results; those whose seed has no plain training yet are left out."""
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = {Case(**{key: line[key] for key in Case.__dataclass_fields__ if key in line}): line for line in lines}
    points = []
    for case, line in found.items():
        base = found.get(Case(case.task, case.seed, world=case.world))
        if base is not None and base is not line:
            change = 100 * (line["test"]["ne"] / base["test"]["ne"] - 1)
            fewer = (_fewer(base, line, ("dense",)), _fewer(base, line, ("vectors", "gradients")))
            points.append(Point(case, change, *fewer))
    return points


def _fewer(base: dict[str, Any], line: dict[str, Any], kinds: Sequence[str]) -> float:
    return float(sum(base["bytes"][kind] for kind in kinds) / sum(line["bytes"][kind] for kind in kinds))


def main(files: Sequence[Path]) -> None:
    points, page = read(files), DOCS / "thresholds.md"
    by_task = {task: [point for point in points if point.case.task == task] for task in EVERY}
    text = page.read_text()
    tables = "\n\n".join(f"### {task}\n\n{table(of_task)}" for task, of_task in by_task.items())
    page.write_text(f"{text.split(BEGIN)[0]}{BEGIN}\n\n{tables}\n\n{END}{text.split(END)[1]}")
    (DOCS / "thresholds.svg").write_text(drawing(by_task))


# ------------------------------------------------------------------------------------------------------- table


def table(points: Sequence[Point]) -> str:
    """A task in Markdown: a row for each method, a column for each sparsity; then what stands in no such row."""
    columns = (0.0, *SPARSITIES)
    lines = ["| of | how | " + " | ".join(map(str, columns)) + " |", "|---|---|" + "--:|" * len(columns)]
    for place, what in PLACE_NAMES.items():
        for method, how in NAMES.items():
            of_row = [point for point in points if point.place == place and point.method == method]
            cells = [_cell([point for point in of_row if point.sparsity == sparsity]) for sparsity in columns]
            if any(cells):
                lines.append(f"| {what} | {how} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_others(points)])


def _cell(points: Sequence[Point]) -> str:
    return f"{_mean(points)} ({_times(point.fewer for point in points)})" if points else ""


def _times(factors: Iterable[float]) -> str:
    return f"{statistics.mean(factors):.3g}x"


def _mean(points: Sequence[Point]) -> str:
    changes = [point.change for point in points]
    spread = f" ± {statistics.stdev(changes):.2f}" if len(changes) > 1 else ""
    return f"{statistics.mean(changes):+.2f}{spread}"


def _others(points: Sequence[Point]) -> list[str]:
    rows: dict[str, list[Point]] = {}
    for point in points:
        if point.method not in NAMES:
            rows.setdefault(_name(point.case), []).append(point)
    lines = ["| | change of NE, % | dense gradients | vectors and their gradients |", "|---|--:|--:|--:|"]
    for name, of_row in rows.items():
        dense, boundary = (
            _times(getattr(point, f"fewer_{part}") for point in of_row) for part in ("dense", "boundary")
        )
        lines.append(f"| {name} | {_mean(of_row)} | {dense} | {boundary} |")
    return lines


def _name(case: Case) -> str:
    asked = [f"{name} {getattr(case, name)}" for name in ("dense", "forward", "backward") if getattr(case, name)]
    words = [CONTROLS.get(case.method) or NAMES[case.method] if asked or case.method in CONTROLS else "", *asked]
    if asked:
        words.append(f"every {case.every} steps")
    words += [f"{case.values} on the wire"] if case.values != "fp32" else []
    if case.vectors:
        words.append(
            f"vectors in {case.vectors}, their gradients in {case.gradients}"
            if case.gradients
            else f"vectors and their gradients in {case.vectors}"
        )
    words += [f"{case.world} ranks"] if case.world != WORLD else []
    return ", ".join(word for word in words if word)


# -------------------------------------------------------------------------------------------------------- plot


def drawing(by_task: dict[str, list[Point]]) -> str:
    """The change of NE over how many times fewer bytes travel: a panel for each task and each half of DCT."""
    parts = []
    for row, (task, points) in enumerate(by_task.items()):
        for column, (title, places) in enumerate(PANELS.items()):
            here = [
                point
                for point in points
                if point.drawn in COLOURS and (point.place in places or point.drawn == FORMATS and "both" in places)
            ]
            parts.append(f'<g transform="translate({60 + column * 430},{40 + row * 290})">')
            parts += [*_axes(f"{task}: {title}"), *_curves(here), "</g>"]
    for number, (method, colour) in enumerate(COLOURS.items()):
        x = 60 + 160 * number
        parts.append(f'<rect x="{x}" y="{40 + 290 * len(by_task)}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{49 + 290 * len(by_task)}">{NAMES.get(method, method)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="880" height="{70 + 290 * len(by_task)}"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f'{head} font-family="sans-serif" font-size="11">', ground, *parts, "</svg>"]) + "\n"


def _axes(title: str) -> list[str]:
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>', f'<text y="-8">{title}</text>']
    for times in (1, 2, 5, 10, 20, 50, 100):
        x = _x(times)
        parts.append(f'<path d="M{x:.0f} 0V{HEIGHT}" stroke="#eee"/>')
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT + 14}" text-anchor="middle">{times}x</text>')
    for change in (-0.1, 0, 0.1, 0.3, 1, 3, 10):
        y, colour = _y(change), "#c00" if change == 0.1 else "#eee"
        parts.append(f'<path d="M0 {y:.0f}H{WIDTH}" stroke="{colour}"/>')
        parts.append(f'<text x="-6" y="{y + 4:.0f}" text-anchor="end">{change:+g}%</text>')
    return parts


def _curves(points: Sequence[Point]) -> list[str]:
    rows: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        rows.setdefault((point.place or "", point.drawn or ""), []).append(point)
    return [part for (place, method), of_row in rows.items() for part in _curve(of_row, place, COLOURS[method])]


def _curve(points: Sequence[Point], place: str, colour: str) -> list[str]:
    cases: dict[Case, list[Point]] = {}
    for point in points:
        cases.setdefault(replace(point.case, seed=0), []).append(point)
    means = []
    for at in cases.values():
        x, y = statistics.mean(point.fewer for point in at), statistics.mean(point.change for point in at)
        means.append((round(_x(x), 1), round(_y(y), 1)))
    means.sort()
    line, dashes = " ".join(f"{x},{y}" for x, y in means), ' stroke-dasharray="4 3"' if place == "forward" else ""
    dots = [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in means]
    return [f'<polyline points="{line}" fill="none" stroke="{colour}"{dashes}/>', *dots]


def _x(times: float) -> float:
    return WIDTH * math.log(max(times, 1)) / math.log(MOST_TIMES)


def _y(change: float) -> float:
    """Even near 0, logarithmic above: asinh."""
    lowest, highest = math.asinh(LEAST_CHANGE / FLAT), math.asinh(MOST_CHANGE / FLAT)
    place = math.asinh(min(max(change, LEAST_CHANGE), MOST_CHANGE) / FLAT)
    return HEIGHT * (highest - place) / (highest - lowest)


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
