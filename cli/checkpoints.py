"""dlrmx checkpoints: what a run has saved, what is in a checkpoint, whether it is sound. Without torch."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlrmx.errors import MOST_SHOWN, InputError, Problem
from dlrmx.units import format_bytes, format_count, format_metric

from . import options, runs
from .output import pairs, print_json, print_result, say, screen_width, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrmx.checkpoint.retain import Info
    from dlrmx.checkpoint.show import Description

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Checkpoints: list, show, verify, prune.")


@app.command("list")
def list_checkpoints(run: options.Run = None, json: options.Json = False) -> None:
    """List a run's checkpoints, oldest first."""
    from dlrmx.checkpoint import retain

    paths = runs.find(run)
    found = retain.list_checkpoints(paths)
    if json:
        print_json(checkpoints=[_info_json(info) for info in found])
    elif not found:
        say(f"{paths.name} has no checkpoints; `dlrmx status {runs.words_for(paths)}` says what it is")
    else:
        rows = [_info_row(info) for info in found]
        header = ["step", "kind", "size", "state", "metrics", "path"]
        print_result(table(header, rows, right=["step", "size"], width=screen_width()))


@app.command("show")
def show_checkpoint(target: options.RunOrCheckpoint, json: options.Json = False) -> None:
    """Show what a checkpoint holds: its tensors, step, data position and metrics."""
    from dlrmx.checkpoint.show import describe

    found = describe(find_checkpoint(target))
    if json:
        print_json(**{**asdict(found), "path": str(found.path)})
    else:
        print_result("\n\n".join([_facts(found), _tensors(found), *(["\n".join(found.plan)] if found.plan else [])]))


@app.command("verify")
def verify_checkpoints(target: options.RunOrCheckpoint, json: options.Json = False) -> None:
    """Read every byte of a checkpoint, or of all of a run's, and name what is damaged or missing."""
    from dlrmx.checkpoint.verify import problems

    found = {str(path): problems(path) for path in _checkpoints_of(target)}
    if json:
        print_json(checkpoints=[{"path": path, "problems": wrong} for path, wrong in found.items()])
    else:
        print_result("\n".join(_verdict(path, wrong) for path, wrong in found.items()))
    if any(found.values()):
        raise typer.Exit(2)


@app.command("prune")
def prune_checkpoints(
    run: options.Run = None,
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="Default: the recipe's checkpoint.keep.")] = None,
    json: options.Json = False,
) -> None:
    """Delete a run's older checkpoints; the newest and the best good ones stay."""
    from dlrmx.checkpoint.retain import prune
    from dlrmx.runs.claim import hold

    from .again import newest_recipe

    paths = runs.find(run)
    wanted = newest_recipe(paths).checkpoint
    with hold(paths):
        pruned = prune(paths, keep=keep or wanted.keep, best_metric=wanted.best.metric if wanted.best else None)
    if json:
        print_json(kept=_names(pruned.kept), removed=_names(pruned.removed), failed=list(pruned.failed))
    else:
        lines = [*(f"kept     {path}" for path in pruned.kept), *(f"removed  {path}" for path in pruned.removed)]
        print_result("\n".join([*lines, *(f"FAILED   {failure}" for failure in pruned.failed)]))


def find_good_checkpoint(target: str) -> Path:
    """As `find_checkpoint`, read to its last byte: InputError names what is damaged."""
    from dlrmx.checkpoint.verify import problems

    path = find_checkpoint(target)
    if wrong := problems(path):
        raise InputError([Problem(f"{path}: the checkpoint is damaged; nothing was started"), *map(Problem, wrong)])
    return path


def find_checkpoint(target: str) -> Path:
    """The checkpoint directory that the words mean: its path, or a run's newest good one; newer damage is told."""
    from dlrmx.checkpoint.manifest import MANIFEST
    from dlrmx.checkpoint.retain import newest_good
    from dlrmx.runs.claim import is_copy

    path = Path(target)
    if (path / MANIFEST).is_file():
        return path.resolve()
    run = runs.find(target)
    if is_copy(run):
        hint = "root_here in the cluster profile says where this machine sees them; train.evaluate measures in the run"
        raise InputError(f"the checkpoints of run {run.name} are where only its pods see them", hint=hint)
    good, reasons = newest_good(run)
    if good is None:
        raise InputError("\n".join([f"no good checkpoint in {run.dir}", *reasons]))
    say_passed_over(reasons)
    return good


def say_passed_over(reasons: list[str]) -> None:
    """Tell why newer checkpoints than the one that is taken do not count."""
    for reason in reasons[:MOST_SHOWN]:
        say(f"passed over: {reason}")


def _checkpoints_of(target: str) -> list[Path]:
    from dlrmx.checkpoint.manifest import MANIFEST
    from dlrmx.checkpoint.retain import list_checkpoints

    path = Path(target)
    if (path / MANIFEST).is_file():
        return [path.resolve()]
    return [info.path for info in list_checkpoints(runs.find(target)) if info.kind != "leftover"]


def _names(paths: "Iterable[Path]") -> list[str]:
    return [str(path) for path in paths]


def _info_row(info: "Info") -> list[str]:
    shown = {name: value for name, value in info.metrics.items() if name.endswith((".loss", ".ne", ".auc"))}
    metrics = "  ".join(f"{name} {format_metric(value)}" for name, value in shown.items())
    state = info.problems[0] if info.problems else "complete"
    return [f"{info.step:,}", info.kind, format_bytes(info.bytes), state, metrics, str(info.path)]


def _info_json(info: "Info") -> dict[str, object]:
    return {
        "step": info.step,
        "kind": info.kind,
        "path": str(info.path),
        "attempt": info.attempt,
        "bytes": info.bytes,
        "metrics": info.metrics,
        "problems": list(info.problems),
    }


def _facts(found: "Description") -> str:
    state = {key: str(value) for key, value in found.state.items() if not isinstance(value, dict | list)}
    metrics = found.state.get("metrics")
    return pairs(
        {
            "path": str(found.path),
            "step": f"{found.step:,}",
            "attempt": str(found.attempt),
            "size": f"{format_bytes(found.bytes)} in {format_count(len(found.files))} files",
            **{key: value for key, value in state.items() if key not in ("step", "attempt")},
            **({name: str(value) for name, value in metrics.items()} if isinstance(metrics, dict) else {}),
        }
    )


def _tensors(found: "Description") -> str:
    rows = [
        [
            line.name,
            " x ".join(map(str, line.shape)) or "scalar",
            line.dtype,
            format_bytes(line.bytes),
            f"{line.parts:,}",
        ]
        for line in found.tensors
    ]
    header = ["tensor", "shape", "dtype", "size", "parts"]
    return table(header, rows, right=["size", "parts"], width=screen_width())


def _verdict(path: str, wrong: list[str]) -> str:
    return f"good  {path}" if not wrong else "\n".join([f"BAD   {path}", *(f"      {problem}" for problem in wrong)])
