"""How prepared data look: splits, features, look-ups and their skew, whether a recipe fits; within 80 columns."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlrmx.units import format_bytes, format_count, format_metric

from .output import printable, table

if TYPE_CHECKING:
    from dlrmx.data.fit import Finding
    from dlrmx.data.manifest import FeatureFacts, Manifest

NAME_WIDTH = 16
VALUE_WIDTH = 22
RANGES = 16
BAR_WIDTH = 40
BUSIEST = 3
HOTTEST = (0.001, 0.01, 0.1)
LEVELS = " ▁▂▃▄▅▆▇█"

Names = Mapping[str, Sequence[str]]


def overview(manifest: "Manifest") -> str:
    """What the data are of, and how much."""
    size = format_bytes(sum(file.bytes for file in manifest.files.values()))
    files = len(manifest.sources)
    of = f"from {files} file{'s' if files > 1 else ''}" if files else "drawn, not read"
    return f"{manifest.rows.read:,} rows {of}; prepared they take {size}"


def splits(manifest: "Manifest") -> str:
    header = ["split", "rows", "label mean"]
    rows = [[name, f"{split.rows:,}", format_metric(split.label_mean)] for name, split in manifest.splits.items()]
    if any(split.optimum_ne is not None for split in manifest.splits.values()):
        header.append("optimum NE")
        for row, split in zip(rows, manifest.splits.values(), strict=True):
            row.append("" if split.optimum_ne is None else format_metric(split.optimum_ne))
    return table(header, rows, right=header[1:])


def features(manifest: "Manifest") -> str:
    """What each feature holds."""
    header = ["feature", "mean ids", "max", "rows used", "missing", "unseen", "bad"]
    rows = [
        [
            shortened(name, NAME_WIDTH),
            f"{facts.mean_pooling:.2f}",
            str(facts.max_pooling),
            f"{format_count(facts.distinct)} of {format_count(facts.rows)}",
            *(format_count(count) for count in (facts.missing, facts.unseen, facts.bad)),
        ]
        for name, facts in manifest.features.items()
    ]
    return table(header, rows, right=header[1:])


def load(manifest: "Manifest") -> str:
    """Where in its table each feature's look-ups fall, and how few rows take how many of them."""
    hottest = [f"top {fraction:.1%}".replace(".0%", "%") for fraction in HOTTEST]
    header = ["feature", f"load of {RANGES} ranges", "most", *hottest]
    rows = [
        [
            shortened(name, NAME_WIDTH),
            _sparkline(ranges(facts)),
            _most(ranges(facts)),
            *(f"{facts.share_of_hottest(fraction):.1%}" for fraction in HOTTEST),
        ]
        for name, facts in manifest.features.items()
    ]
    legend = "most: the busiest range's look-ups beside the mean; top: the share of look-ups of a table's hottest rows"
    return f"{table(header, rows, right=header[2:])}\n{_folded(legend)}"


def busiest(manifest: "Manifest", names: Names) -> str:
    """The rows that each feature looks up most. `names`: what stands behind the rows of each feature's `top`."""
    header = ["feature", "row", "look-ups", "share", "value"]
    rows = [
        [shortened(name, NAME_WIDTH), *_row(row, count, facts), shortened(names[name][place], VALUE_WIDTH)]
        for name, facts in manifest.features.items()
        for place, (row, count) in enumerate(facts.top[:BUSIEST])
    ]
    return table(header, rows, right=["row", "look-ups", "share"])


def one_feature(name: str, facts: "FeatureFacts", names: Sequence[str]) -> str:
    """All about one feature: its busiest rows, its skew, and a bar for each range of rows."""
    top = [
        [*_row(row, count, facts), shortened(value, VALUE_WIDTH)]
        for (row, count), value in zip(facts.top, names, strict=True)
    ]
    skew = [[f"{fraction:.2%}", f"{share:.1%}"] for fraction, share in facts.hot]
    header = ["row", "look-ups", "share", "value"]
    how = f"estimated from {facts.sampled:,} look-ups" if facts.sampled else "every look-up was counted"
    return "\n\n".join(
        [
            f"{name}: {sum(facts.histogram):,} look-ups in table {facts.table} of {facts.rows:,} rows; {how}",
            table(header, top, right=header[:3]),
            table(["hottest rows", "look-ups"], skew, right=["hottest rows", "look-ups"]),
            _bars(facts),
        ]
    )


def fit(found: "Sequence[Finding]") -> str:
    """Whether the recipe fits, and why not."""
    fits = "no" if any(finding.kind == "no" for finding in found) else "yes"
    return "\n".join([f"fits: {fits}", *(_folded(f"  {finding.kind.ljust(4)}  {finding.what}") for finding in found)])


def manifest_json(manifest: "Manifest", names: Names) -> dict[str, Any]:
    """All of it, for programs."""
    from dataclasses import asdict

    features = {
        name: {
            **asdict(facts),
            "top": [
                {"row": row, "lookups": count, "share": _share(count, facts), "value": value or None}
                for (row, count), value in zip(facts.top, names[name], strict=True)
            ],
        }
        for name, facts in manifest.features.items()
    }
    return {
        "fingerprint": manifest.fingerprint,
        "bytes": sum(file.bytes for file in manifest.files.values()),
        "rows": asdict(manifest.rows),
        "by_file": manifest.by_file,
        "splits": {name: asdict(split) for name, split in manifest.splits.items()},
        "features": features,
    }


def ranges(facts: "FeatureFacts") -> list[int]:
    """Look-ups in each of 16 equal ranges of the table's rows."""
    step = len(facts.histogram) // RANGES
    return [sum(facts.histogram[first : first + step]) for first in range(0, len(facts.histogram), step)]


def shortened(text: str, width: int) -> str:
    text = printable(text)  # before it is cut: what is shown of a character is longer
    return text if len(text) <= width else text[: width - 1] + "…"


def _row(row: int, count: int, facts: "FeatureFacts") -> list[str]:
    return [f"{row:,}", f"{count:,}", f"{_share(count, facts):.2%}"]


def _share(count: int, facts: "FeatureFacts") -> float:
    return count / max(sum(facts.histogram), 1)


def _most(counts: Sequence[int]) -> str:
    total = sum(counts)
    return f"{max(counts) * len(counts) / total:.2f}x" if total else ""


def _sparkline(counts: Sequence[int]) -> str:
    most = max(max(counts), 1)
    return "".join(LEVELS[-(-count * (len(LEVELS) - 1) // most)] for count in counts)


def _bars(facts: "FeatureFacts") -> str:
    counts = ranges(facts)
    most = max(max(counts), 1)
    # Range k holds the rows from the first with row * 16 // rows == k on.
    starts = [-(-place * facts.rows // RANGES) for place in range(RANGES + 1)]
    rows = [
        [f"{start:,}", ("█" * round(count / most * BAR_WIDTH)).ljust(BAR_WIDTH), f"{_share(count, facts):.1%}"]
        for start, end, count in zip(starts, starts[1:], counts, strict=False)
        if end > start
    ]
    return table(["from row", "load", "look-ups"], rows, right=["from row", "look-ups"])


def _folded(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 80, subsequent_indent="        ", break_long_words=False, break_on_hyphens=False)
