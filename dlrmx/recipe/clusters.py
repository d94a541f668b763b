"""Cluster profiles: where a recipe runs. Finding them by name, reading them, and what they mean on this machine."""

import getpass
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from dlrmx.errors import InputError, Problem
from dlrmx.recipe.explain import explain
from dlrmx.recipe.kubernetes import kubernetes_problems
from dlrmx.recipe.names import near_miss
from dlrmx.recipe.node import GPUS_PER_NODE, Node, NodeKind
from dlrmx.recipe.profiles import CPU_WORKERS, PROFILES, KubernetesProfile, Profile, SlurmProfile, profile_class
from dlrmx.recipe.sbatch import slurm_problems
from dlrmx.recipe.tree import leaves
from dlrmx.recipe.yaml_file import Document, place_of, read_yaml

SET_BY_THE_LAUNCHER = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "DLRMX_JOB",
)

# This machine, and kinds of node that can be planned for by name. A file of the same name comes first.
BUILT_IN: dict[str, dict[str, Any]] = {
    "local": {},
    **{kind: {"scheduler": "none", "node": {"kind": kind}} for kind in get_args(NodeKind) if kind != "cpu"},
}

GPUS = Path("/proc/driver/nvidia/gpus")
GPU_KINDS: dict[str, NodeKind] = {
    "A100-SXM4-40GB": "zionex",
    "A100-SXM4-80GB": "dgx_a100_80",
    "H100 80GB": "dgx_h100",
    "H200": "hgx_h200",
}


@dataclass(frozen=True)
class FoundProfile:
    """A profile as it was resolved: its values, name ("inline" in a recipe), each key's origin, and its file or ""."""

    profile: Profile
    name: str
    origins: dict[str, str]
    file: str


def find_profile(name: str) -> Profile:
    """The profile of that name (or path of a YAML file), validated. InputError with all problems."""
    return resolve_profile(name, {}, Document({}), nodes=None).profile


def profile_files() -> dict[str, Path]:
    """Profiles by name in ./clusters, the user's and the system's folder; the first of a name wins."""
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return found


def profile_path(name: str) -> Path:
    """The file of a profile (a name, or a path), or where the user's own of that name would be."""
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return Path(name).expanduser()
    return profile_files().get(name) or _folders()[1] / f"{name}.yaml"


def profile_names() -> list[str]:
    """All profiles that can be named, the built-in ones included."""
    return sorted({*profile_files(), *BUILT_IN})


def resolve_profile(cluster: Any, places: dict[str, str], overrides: Document, nodes: int | None) -> FoundProfile:
    """The profile that a recipe's `cluster` (a name or a mapping) means, with overrides and --nodes.

    `places` are the recipe's. All problems of the profile are raised in one InputError, keyed `cluster.*`.
    """
    where = place_of("cluster", places)
    if isinstance(cluster, str):
        name, document = cluster, _read_named(cluster, where)
    elif isinstance(cluster, dict):
        inside = {key.removeprefix("cluster."): place for key, place in places.items() if key.startswith("cluster.")}
        name, document = "inline", Document(cluster, inside)
    else:
        raise InputError([Problem("must be a profile's name, or a mapping", where=where, key="cluster")])
    raw = _merge(document.value, overrides.value)
    if nodes is not None:
        raw["nodes"] = nodes
    problems = [*document.problems, *overrides.problems]
    profile = None
    if (scheduler := raw.get("scheduler", "local")) not in PROFILES:
        known = f"there are {', '.join(PROFILES)}"
        found = Problem(f"no scheduler is named {scheduler!r}", key="scheduler", hint=known)
        problems.append(_placed(found, document, overrides, where))
    else:
        wanted = profile_class(raw)
        try:
            profile = wanted.model_validate(raw)
        except ValidationError as error:
            problems += [_placed(problem, document, overrides, where) for problem in explain(error, raw, wanted)]
            profile = _without_broken(wanted, raw, error)
    if profile is not None:
        problems += [_placed(problem, document, overrides, where) for problem in _rules(profile)]
    if problems or profile is None:
        if nodes is not None:
            problems = [replace(p, where="--nodes") if p.key == "nodes" else p for p in problems]
        raise InputError([replace(p, key=f"cluster.{p.key}") for p in problems])
    origins = {key: _origin(key, name, raw, document, overrides, nodes) for key, _ in leaves(profile)}
    return FoundProfile(_with_paths(profile), name, origins, document.name)


def world_size(profile: Profile) -> int:
    """Ranks of a run: nodes x workers per node."""
    return profile.nodes * workers_per_node(profile)


def workers_per_node(profile: Profile) -> int:
    """Workers per node; where the profile leaves it open, its node's GPUs, else this machine's, else CPU_WORKERS."""
    if profile.workers_per_node is not None:
        return profile.workers_per_node
    if isinstance(profile, KubernetesProfile):
        return profile.gpus or CPU_WORKERS
    if isinstance(profile, SlurmProfile) and profile.gpus is not None:
        return profile.gpus
    if profile.node is not None and profile.node.kind not in (None, "cpu"):
        return GPUS_PER_NODE
    if isinstance(profile, SlurmProfile):
        return CPU_WORKERS  # this machine is none of its nodes
    return len(_gpu_models()) or CPU_WORKERS


def node_of(profile: Profile) -> Node:
    """What plans count on: as the profile says, else this machine, where its GPUs are of a kind that is known."""
    if profile.node is not None:
        return profile.node
    models = _gpu_models() if profile.scheduler == "local" else []
    kinds = [kind for model, kind in GPU_KINDS.items() if models and all(model in one for one in models)]
    return Node(kind=kinds[0]) if kinds else Node()


def _gpu_models() -> list[str]:
    """The model of each of this machine's GPUs, as the driver says it; "" where it says none."""
    found = []
    for folder in sorted(GPUS.glob("*")):
        try:
            lines = (folder / "information").read_text().splitlines()
        except OSError:
            lines = []
        found.append(next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), ""))
    return found


def host_memory_bytes(profile: Profile) -> int:
    """Host memory of one node that plans may use: as the profile says, else all of this machine's."""
    if profile.memory_gib is not None:
        return int(profile.memory_gib * 2**30)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _folders() -> list[Path]:
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return [Path("clusters"), Path(config).expanduser() / "dlrmx" / "clusters", Path("/etc/dlrmx/clusters")]


def _read_named(name: str, where: str) -> Document:
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return read_yaml(Path(name).expanduser())
    if path := profile_files().get(name):
        return read_yaml(path)
    if name in BUILT_IN:
        return Document(dict(BUILT_IN[name]))
    folders = ", ".join(str(folder) for folder in _folders())
    hint = f"{near_miss(name, profile_names())} (searched: {folders})"
    raise InputError([Problem(f'no cluster profile is named "{name}"', where=where, key="cluster", hint=hint)])


def _merge(raw: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(raw)
    for key, value in changes.items():
        below = merged.get(key)
        if key == "env" and isinstance(value, dict) and isinstance(below, dict):
            value = {**below, **value}
        merged[key] = value
    return merged


def _without_broken(wanted: type[Profile], raw: dict[str, Any], error: ValidationError) -> Profile | None:
    """The profile without the settings that are broken, so that all problems can be told at once; None: no profile."""
    broken = {each["loc"][0] for each in error.errors() if each["loc"]}
    try:
        return wanted.model_validate({key: value for key, value in raw.items() if key not in broken})
    except ValidationError:
        return None


def _rules(profile: Profile) -> Iterator[Problem]:
    if not _is_utf8(_absolute(profile.root)):
        yield Problem("its path is not UTF-8 text", key="root", hint="-s cluster.root=/another/folder")
    if profile.scheduler == "local" and profile.nodes > 1:
        yield Problem(
            f"must be 1, not {profile.nodes}: local is this machine", key="nodes", hint="raise workers_per_node"
        )
    if isinstance(profile, KubernetesProfile):
        yield from kubernetes_problems(profile)
    if isinstance(profile, SlurmProfile):
        yield from slurm_problems(profile)
    for name in profile.env:
        if name in SET_BY_THE_LAUNCHER:
            yield Problem("is set by the launcher for each worker", key=f"env.{name}", hint="take it out")
        elif not name or "=" in name or not name.isprintable():
            yield Problem("is no name of an environment variable", key=f"env.{name}")


def _placed(problem: Problem, document: Document, overrides: Document, where: str) -> Problem:
    place = place_of(problem.key, overrides.places) or place_of(problem.key, document.places) or document.name or where
    return Problem(problem.what, where=place, key=problem.key, hint=problem.hint)


def _origin(key: str, name: str, raw: Any, document: Document, overrides: Document, nodes: int | None) -> str:
    if place_of(key, overrides.places):
        return "-s"
    if key == "nodes" and nodes is not None:
        return "--nodes"
    if key.split(".")[0] not in raw:
        return "default"
    return f"recipe {place_of(key, document.places)}" if name == "inline" else f"profile {name}"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _with_paths(profile: Profile) -> Profile:
    """Folders as absolute paths, whatever the shell's folder is later."""
    paths = {"root": _absolute(profile.root)}
    if isinstance(profile, KubernetesProfile) and profile.root_here is not None:
        paths["root_here"] = _absolute(profile.root_here)
    return profile.model_copy(update=paths)


def _absolute(root: str) -> str:
    filled = root.replace("{user}", _user()) if "{user}" in root else root
    return os.path.abspath(os.path.expanduser(filled))


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user id without a name
        return str(os.getuid())
