"""Puts what compare.py measured into docs/benchmarks.md, between its marks, and draws docs/benchmarks.svg.

.venv/bin/python benchmarks/steps/page.py
"""

import json
import statistics
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- measured: make bench writes what follows -->", "<!-- measured: end -->"
SIDES = {
    "torchrec": ("TorchRec, at its best", "#4477aa"),
    "as_it_comes": ("TorchRec, its own model", "#66ccee"),
    "floor": ("the floor", "#bbbbbb"),
}
LEFT, WIDTH, BAR, GAP = 150, 420, 11, 12  # pixels
MOST = 2.0  # the ratio at the right end


def main() -> None:
    found = json.loads((DOCS / "benchmarks.json").read_text())
    page = DOCS / "benchmarks.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{table(found)}\n{END}{rest.split(END)[1]}")
    (DOCS / "benchmarks.svg").write_text(drawing(found["workloads"]))


def table(found: dict[str, Any]) -> str:
    """The machine, a row per workload, and means; a side that was left out of a workload has no number there."""
    workloads: dict[str, dict[str, Any]] = found["workloads"]
    lines = [
        f"On {', '.join(f'{key} {value}' for key, value in found['machine'].items())}.",
        "",
        "| workload | TorchRec shards | TorchRec, ms | dlrmx, ms | TorchRec / dlrmx | its own model / dlrmx "
        "| floor / dlrmx | losses apart |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in sorted(workloads.items()):
        best = one["torchrec"]
        ratios = " | ".join(_ratio(one[side]) if side in one else "-" for side in SIDES)
        lines.append(
            f"| {name} | {one['torchrec_type']} | {best['ms']:.0f} | {best['dlrmx_ms']:.0f} | {ratios} "
            f"| {best['losses_apart']:.0e} |"
        )
    means = [_mean([one[side]["ratio"]["median"] for one in workloads.values() if side in one]) for side in SIDES]
    lines.append(f"| geometric mean | | | | {' | '.join(means)} | |")
    return "\n".join(lines) + "\n"


def _mean(ratios: list[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"


def _ratio(one: dict[str, Any]) -> str:
    ratio = one["ratio"]
    lost = " (slower)" if one["losses_apart"] is not None and ratio["median"] < 1 else ""
    return f"{ratio['median']:.2f}{lost}, {ratio['low']:.2f} to {ratio['high']:.2f}"


def drawing(workloads: dict[str, dict[str, Any]]) -> str:
    """Bars of the ratios with their quartiles, in SVG."""
    parts, top = [], 30
    for number, (label, colour) in enumerate(SIDES.values()):
        parts.append(f'<rect x="{LEFT + 150 * number}" y="6" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 14 + 150 * number}" y="15">{label}</text>')
    for name, one in sorted(workloads.items()):
        parts.append(f'<text x="{LEFT - 8}" y="{top + 1.5 * BAR + 4:.0f}" text-anchor="end">{name}</text>')
        for side, (_, colour) in SIDES.items():
            if side not in one:
                continue
            ratio, middle = one[side]["ratio"], top + BAR / 2
            low, high = _x(ratio["low"]), _x(ratio["high"])
            parts += [
                f'<rect x="{LEFT}" y="{top}" width="{_x(ratio["median"]) - LEFT}" height="{BAR - 2}" fill="{colour}"/>',
                f'<path d="M{low} {middle:.1f}H{high}" stroke="black"/>',
                f'<text x="{high + 5}" y="{top + BAR - 2}">{ratio["median"]:.2f}</text>',
            ]
            top += BAR
        top += GAP
    one_x = _x(1)
    parts.append(f'<path d="M{one_x} 22V{top}" stroke="black" stroke-dasharray="3 3"/>')
    parts.append(f'<text x="{one_x}" y="{top + 14}" text-anchor="middle">1: as long as a step of dlrmx</text>')
    size = f'width="{LEFT + WIDTH + 60}" height="{top + 24}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"


def _x(ratio: float) -> int:
    return LEFT + round(WIDTH * min(ratio, MOST) / MOST)


if __name__ == "__main__":
    main()
