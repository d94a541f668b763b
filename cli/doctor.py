"""dlrmx doctor: whether this machine, or every node of a cluster, can do what a job asks of it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .output import print_json, print_result, say

if TYPE_CHECKING:
    from dlrmx.launch.doctor import Finding
    from dlrmx.launch.examine import Examined

UNREACHED = 3
SIGNS = {"ok": "ok    ", "note": "note  ", "failed": "FAILED"}


def doctor(
    cluster: Annotated[
        str, typer.Option("--cluster", metavar="NAME", help="Ask a cluster, and each of its nodes by a job.")
    ] = "local",
    json: options.Json = False,
) -> None:
    """Check packages, kernels, network, disk, scheduler."""
    from dataclasses import asdict

    from dlrmx.launch.examine import examine_cluster
    from dlrmx.recipe.clusters import find_profile

    profile = find_profile(cluster)
    found = examine_cluster(profile, say)
    failed = any(finding.verdict == "failed" for one in found for finding in one.findings)
    if json:
        print_json(ok=not failed, cluster=cluster, examined=[asdict(one) for one in found])
    else:
        print_result("\n\n".join(nodes_text(found)))
    raise typer.Exit(UNREACHED if failed else 0)


def nodes_text(found: "Sequence[Examined]") -> list[str]:
    """A part for each; of nodes after the first only what is not well, or is another than there."""
    first = next((one for one in found if one.node is not None), None)
    texts = []
    for one in found:
        if first is None or one is first or one.node is None:
            texts.append(examined_text(one))
            continue
        known = {_anywhere(finding, first.host) for finding in first.findings}
        other = tuple(
            finding for finding in one.findings if finding.verdict != "ok" or _anywhere(finding, one.host) not in known
        )
        texts.append(examined_text(replace(one, findings=other), as_first=True))
    return texts


def _anywhere(finding: "Finding", host: str) -> tuple[str, str, str]:
    """What was found, without the names and addresses in which nodes differ."""
    said = "" if finding.what == "nodes" else re.sub(r"\d+\.\d+\.\d+\.\d+", "", finding.said.replace(host, ""))
    return finding.what, finding.verdict, said


def examined_text(one: "Examined", *, as_first: bool = False) -> str:
    """A line per finding, and below it the way out. as_first: all else is as on the first node."""
    head = f"from {one.host}" if one.node is None else f"node {one.node}: {one.host}"
    lines = [f"{head}, as the first node" + ", but for" * bool(one.findings) if as_first else head]
    width = max((len(finding.what) for finding in one.findings), default=0)
    for finding in one.findings:
        lines.append(f"  {SIGNS[finding.verdict]}  {finding.what.ljust(width)}  {finding.said}")
        lines.extend([f"          {finding.hint}"] if finding.hint else [])
    return "\n".join(lines)
