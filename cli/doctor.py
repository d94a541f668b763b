"""dlrmx doctor: whether this machine, or every node of a cluster, can do what a job asks of it."""

from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .output import print_json, print_result, say

if TYPE_CHECKING:
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
        print_result("\n\n".join(examined_text(one) for one in found))
    raise typer.Exit(UNREACHED if failed else 0)


def examined_text(one: "Examined") -> str:
    """A line per finding, and below it the way out."""
    lines = [f"from {one.host}" if one.node is None else f"node {one.node}: {one.host}"]
    width = max(len(finding.what) for finding in one.findings)
    for finding in one.findings:
        lines.append(f"  {SIGNS[finding.verdict]}  {finding.what.ljust(width)}  {finding.said}")
        lines.extend([f"          {finding.hint}"] if finding.hint else [])
    return "\n".join(lines)
