"""Finding runs from any shell and folder: a cache of where runs are, one small file per run.

A run is what its folder says; an entry only tells where to look. One file per run makes concurrent writers safe
without a lock. A registry that cannot be written costs the finding by name from elsewhere, nothing else.
"""

import difflib
import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from dlrmx.errors import InputError, UnknownRun
from dlrmx.recipe.profiles import KubernetesProfile, Profile
from dlrmx.runs.layout import RunPaths
from dlrmx.runs.run_file import write_aside


def registry_dir() -> Path:
    """$XDG_STATE_HOME/dlrmx/runs, by default under ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "dlrmx" / "runs"


def unseen(profile: Profile) -> bool:
    """Whether only the pods of a profile see the runs' files."""
    return isinstance(profile, KubernetesProfile) and profile.root_here is None


def seen_root(profile: Profile) -> Path:
    """Where this machine finds the runs of a profile: its root; copies of them, where only the pods see that."""
    if not isinstance(profile, KubernetesProfile):
        return Path(profile.root)
    if profile.root_here is not None:
        return Path(profile.root_here)
    cluster = "\n".join([profile.context or "", profile.namespace or "", profile.root])
    name = f"{profile.namespace or 'default'}-{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"
    return registry_dir().parent / "copies" / name


def register(run: RunPaths) -> None:
    """Remember where the run is, and that it was started or resumed just now."""
    entry = json.dumps({"dir": str(run.dir.absolute()), "time": time.time()}) + "\n"
    with suppress(OSError):
        registry_dir().mkdir(parents=True, exist_ok=True)
        write_aside(_entry(run), entry)


def forget(run: RunPaths) -> None:
    """Undo `register`."""
    with suppress(OSError):
        _entry(run).unlink(missing_ok=True)


def all_runs(root: Path | None = None) -> list[RunPaths]:
    """Every run that the registry or the folder `root` knows, newest (last started or resumed) first."""
    times = _registered()
    with suppress(OSError):  # one that may not be looked into hides no others
        for path in root.absolute().iterdir() if root and root.is_dir() else ():
            with suppress(OSError):
                times.setdefault(path, RunPaths(path).run.stat().st_mtime)
    found = sorted(times, key=lambda path: (times[path], path), reverse=True)
    return [RunPaths(path) for path in found if _is_run(path)]


def find_run(text: str | None, root: Path | None = None) -> RunPaths:
    """The run of that name, unique prefix or path; the newest for None.

    Raises UnknownRun (with near misses) where there is none, InputError where several fit.
    """
    if text is not None and _is_path(text):
        return _at_path(text)
    runs = all_runs(root)
    if not runs:
        raise UnknownRun("there are no runs yet", hint="`dlrmx train RECIPE` starts one")
    if text is None:
        return runs[0]
    return _by_name(text, runs)


def _is_run(path: Path) -> bool:
    try:
        return RunPaths(path).run.is_file()
    except OSError:  # no right to look, a disk that is away
        return False


def _entry(run: RunPaths) -> Path:
    return registry_dir() / f"{hashlib.sha256(os.fsencode(run.dir.absolute())).hexdigest()[:24]}.json"


def _registered() -> dict[Path, float]:
    times: dict[Path, float] = {}
    for path in registry_dir().glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            entry = json.loads(path.read_bytes())
            times[Path(entry["dir"])] = float(entry["time"])
    return times


def _is_path(text: str) -> bool:
    return os.sep in text or text in (".", "..") or RunPaths(Path(text)).run.is_file()


def _at_path(text: str) -> RunPaths:
    run = RunPaths(Path(os.path.normpath(Path(text).absolute())))
    if not run.run.is_file():
        raise UnknownRun(f"{text} is not a run: it has no {run.run.name}")
    return run


def _by_name(text: str, runs: list[RunPaths]) -> RunPaths:
    exact = [run for run in runs if run.name == text]
    fitting = exact or [run for run in runs if run.name.startswith(text)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = "\n    ".join(str(run.dir) for run in fitting[:10])
        more = f"\n    and {len(fitting) - 10} more" if len(fitting) > 10 else ""
        raise InputError(f"{len(fitting)} runs fit {text!r}: give more of the name, or a path\n    {listed}{more}")
    near = difflib.get_close_matches(text, [run.name for run in runs], n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "`dlrmx runs` lists them"
    raise UnknownRun(f"no run {text!r}", hint=hint)
