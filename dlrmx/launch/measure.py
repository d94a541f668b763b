"""Has a node measured by workers of its own, and writes what was found into a profile's `node` section.

The node is this machine or, of a cluster, one that a job gets: `python -m dlrmx.launch.measure` runs on it, with the
job in DLRMX_JOB, and prints what was found as JSON lines that begin with MARK.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from dlrmx.errors import ClusterError, InputError, Problem
from dlrmx.launch.agent import agent_env
from dlrmx.launch.errand import errand_spec, run_errand
from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.launch.processes import die_with_parent
from dlrmx.plan.calibrate import calibrated
from dlrmx.plan.topology import topology_of
from dlrmx.recipe.clusters import workers_per_node
from dlrmx.recipe.node import Node
from dlrmx.recipe.profiles import LocalProfile, Profile, read_profile

MODULE = "dlrmx.launch.measure"
WORKER = ("-m", "dlrmx.train.measure")
MARK = '{"dlrmx_measured": '
PIECE = 400  # characters: srun and kubelets cut long lines
# A layer forward and backward: product and bias, ReLU, sum, and each of their gradients.
OPERATIONS_OF_A_LAYER = 8
NANOSECONDS = ("id", "row", "update", "vector", "number", "product", "parameter")
_NODE_SECTION = re.compile(r"^node:.*\n(?:(?:[ \t#].*)?\n)*?(?=^\S|\Z)", re.MULTILINE)


@dataclass(frozen=True)
class Line:
    """Seconds = fixed_s + work / rate, as fitted, and the points (work, seconds) that it was fitted to."""

    fixed_s: float
    rate: float
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Measured:
    """What the workers of one node found, each line by its name in dlrmx.train.measure.

    stages: seconds of each stage of a step of each sample (dlrmx.plan.samples); none of GPUs.
    """

    device: str
    world: int
    threads: int
    lines: dict[str, Line]
    stages: dict[str, dict[str, float]]

    def found_json(self) -> dict[str, Any]:
        """Lines and stages for programs."""
        return {"lines": {name: asdict(line) for name, line in self.lines.items()}, "stages": self.stages}


def measure(profile: Profile, say: Callable[[str], None], worker: tuple[str, ...] = WORKER) -> Measured:
    """Measure a node of the profile with as many workers as it has on it. From the main thread.

    `say` hears why a cluster's job waits. Raises InputError where nothing can be run on the profile, ClusterError where
    the workers fail.
    """
    if profile.scheduler == "none":
        hint = "on one of its nodes: dlrmx clusters measure local, or with a profile of its scheduler"
        raise InputError([Problem("can only be planned for: nothing runs on it", key="cluster", hint=hint)])
    if profile.scheduler == "local":
        return _read(_measure_here(profile, worker))
    one = profile.model_copy(update={"nodes": 1})
    output = run_errand(errand_spec("measure", one), one, ("-m", MODULE, *worker), say)
    found = "".join(_pieces(output))
    if not found:
        hint = "python and setup in the cluster profile; its nodes need the dlrmx of this machine"
        last = "\n".join(output.strip().splitlines()[-15:])
        raise ClusterError(f"the node that was to be measured says: {last or 'not a word'}", hint=hint)
    return _read(json.loads(found))


def _measure_here(profile: Profile, worker: tuple[str, ...]) -> dict[str, Any]:
    """What the workers on this machine wrote. Raises ClusterError where they fail."""
    workers = workers_per_node(profile)
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "measured.json"
        python = os.path.expanduser(profile.python or sys.executable)
        command = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
        done = subprocess.run(
            [*command, *worker, str(found)],
            env=agent_env(os.environ, profile.env, workers),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=die_with_parent(),
        )
        if done.returncode != 0 or not found.is_file():
            raise ClusterError(f"the measuring workers failed (exit code {done.returncode}):\n{_words(done.stderr)}")
        measured: dict[str, Any] = json.loads(found.read_text())
        return measured


def _pieces(output: str) -> Iterator[str]:
    """The pieces of what a node found, of a job's output; whatever else stands there is passed over."""
    for line in output.splitlines():
        _, mark, rest = line.partition(MARK)
        if mark:
            with suppress(ValueError):
                yield json.loads(rest.rstrip()[:-1])


def main(worker: tuple[str, ...]) -> int:
    """Measure this node of the job in the environment. Exits 0 whatever comes: a scheduler is not to try again."""
    spec = JobSpec.from_variable(os.environ.get(JOB_VARIABLE, ""))
    try:
        text = json.dumps(_measure_here(read_profile(spec.profile), worker))
    except ClusterError as error:
        print(error, flush=True)
        return 0
    for start in range(0, len(text), PIECE):
        print(f"{MARK}{json.dumps(text[start : start + PIECE])}}}", flush=True)
    return 0


def measured_node(measured: Measured, before: Node) -> Node:
    """The `node` section with what was measured: of each kind the best rate that was reached, the others as shares.

    Raises InputError where the workers ran on GPUs and `before` does not say which: not all that counts is measured.
    """
    known = before.kind is not None or before.device is not None
    if measured.device == "cuda" and not known:
        hint = "say it in the profile, for example node: {kind: dgx_h100}, and measure again"
        raise InputError([Problem("these GPUs are of no known kind", key="cluster.node.kind", hint=hint)])
    line = measured.lines
    links = {name: line[name] for name in ("all_to_all", "all_reduce")}
    up = max(link.rate for link in links.values())
    numbers: dict[str, Any] = {
        **before.model_dump(exclude_none=True),
        **({} if known else {"kind": "cpu"}),
        "hbm_gb_s": _rounded(line["copy"].rate / 1e9),
        "achieved": {"matrix": 1.0, "hbm": _rounded(min(1.0, line["update"].rate / line["copy"].rate))},
        "fp32_tflops": _rounded(line["matrix_fp32"].rate / 1e12),
        "bf16_tflops": _rounded(line["matrix_bf16"].rate / 1e12),
        "op_us": _rounded(max(line["matrix_fp32"].fixed_s, 1e-7) / OPERATIONS_OF_A_LAYER * 1e6),
        "id_ns": _rounded(1e9 / line["route"].rate),
    }
    if measured.world > 1:
        numbers |= {
            "up_gb_s": _rounded(up / 1e9),
            "up_us": _rounded(max(1e-6, links["all_to_all"].fixed_s) * 1e6),
            "achieved": {
                **numbers["achieved"],
                "all_to_all_up": _rounded(links["all_to_all"].rate / up),
                "all_reduce_up": _rounded(links["all_reduce"].rate / up),
            },
        }
    node = Node.model_validate(numbers)
    return _calibrated(node, measured) if measured.stages else node


def _calibrated(node: Node, measured: Measured) -> Node:
    """The section with constants that steps of the samples were fitted to, from those of single operations."""
    profile = LocalProfile(scheduler="local", workers_per_node=measured.world, memory_gib=1.0, node=node)
    found = calibrated(topology_of(profile), measured.stages)
    shares = node.achieved.model_dump(exclude_none=True) if node.achieved else {}
    numbers: dict[str, Any] = {
        **node.model_dump(exclude_none=True),
        "hbm_gb_s": _rounded(found.hbm_rate / 1e9),
        "achieved": {**shares, **{share: _rounded(getattr(found.achieved, share)) for share in shares}},
        "fp32_tflops": _rounded(found.fp32_flops / 1e12),
        "cache_mb": _rounded(found.cache_bytes / 1e6),
        **{f"{name}_us": _rounded(1e6 * getattr(found, f"{name}_s")) for name in ("op", "step", "feature")},
        **{f"{name}_ns": _rounded(1e9 * getattr(found, f"{name}_s")) for name in NANOSECONDS},
    }
    if measured.world > 1:
        numbers |= {"up_gb_s": _rounded(found.up_rate / 1e9), "up_us": _rounded(1e6 * found.up_latency_s)}
    return Node.model_validate(numbers)


def write_node(node: Node, path: Path, comment: str) -> None:
    """Put the section into a profile's file, made where there is none; all its other lines stay as they are."""
    section = yaml.safe_dump({"node": node.model_dump(exclude_none=True)}, sort_keys=False, default_flow_style=None)
    text = path.read_text(encoding="utf-8") if path.exists() else "scheduler: local\n"
    rest = _NODE_SECTION.sub("", text).rstrip("\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(f"{rest}\n{section.replace('node:', f'node:  # {comment}', 1)}", encoding="utf-8")
    os.replace(aside, path)


def _read(raw: dict[str, Any]) -> Measured:
    lines = {
        name: Line(entry["fixed_s"], entry["rate"], tuple((work, seconds) for work, seconds in entry["points"]))
        for name, entry in raw["lines"].items()
    }
    return Measured(raw["device"], raw["world"], raw["threads"], lines, raw["stages"])


def _words(log: str) -> str:
    """The last lines of the workers' own words: the agent's come after them, and tell nothing more."""
    return "\n".join(log.partition("] failed (exitcode: ")[0].strip().splitlines()[:-1][-15:])


def _rounded(value: float) -> float:
    """Three significant digits: a measurement has no more."""
    return float(f"{value:.3g}")


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:]) or WORKER))
