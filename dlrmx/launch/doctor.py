"""Whether a machine can do its part in a job: `python -m dlrmx.launch.doctor`, on each node, with the job in DLRMX_JOB.

Prints JSON lines that begin with MARK, whatever it finds, and exits 0: a scheduler is not to try again.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from dlrmx import __version__
from dlrmx.errors import DlrmxError
from dlrmx.launch.agent import agent_env
from dlrmx.launch.crew import Crew
from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.launch.member import join
from dlrmx.launch.place import Place, interface_of, place_of, token_of
from dlrmx.recipe.clusters import workers_per_node
from dlrmx.recipe.profiles import Profile, read_profile
from dlrmx.units import format_bytes

MARK = '{"dlrmx_doctor": '
# torch's series, and the fbgemm that is built for it.
PAIRS = {"2.13": "1.8"}
FBGEMM = ("fbgemm-gpu", "fbgemm-gpu-cpu")
SELF_TEST = ("-m", "dlrmx.train.selftest")
SELF_TEST_S = 300.0
MEET_S = 120.0
PROBE_BYTES = 1 << 20
MOST_SAID = 350  # characters
# Less, and the first checkpoints fill it.
SCARCE_BYTES = 1 << 30
NETWORKS = Path("/sys/class/net")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. said: what there is; hint: a way out, where it is not as it should be."""

    what: str
    verdict: Literal["ok", "note", "failed"]
    said: str
    hint: str = ""


def examine(profile: Profile, *, worker: tuple[str, ...] = SELF_TEST) -> list[Finding]:
    """Everything that this machine can be asked alone."""
    env = agent_env(os.environ, profile.env, workers_per_node(profile))
    return [
        Finding("machine", "ok", f"{socket.gethostname()}, {platform.platform()}, {_processors()} processors"),
        *versions(_installed),
        *operators(env, worker),
        *network(env, nodes=profile.nodes),
        root_check(Path(profile.root), shared=profile.nodes > 1),
    ]


def versions(installed: Callable[[str], str | None]) -> Iterator[Finding]:
    """Which packages there are, and whether they pair. installed: a distribution's version, or None."""
    yield Finding("dlrmx", "ok", f"{__version__}, Python {platform.python_version()} ({sys.executable})")
    torch, fbgemm = installed("torch"), {name: installed(name) for name in FBGEMM}
    yield _pairing(torch, {name: found for name, found in fbgemm.items() if found is not None})
    yield _torchx(installed)


def _pairing(torch: str | None, fbgemm: Mapping[str, str]) -> Finding:
    said = ", ".join([f"torch {torch or 'is not installed'}", *(f"{name} {found}" for name, found in fbgemm.items())])
    what = "torch and fbgemm"
    if len(fbgemm) > 1:
        both = (
            f"pip uninstall {' '.join(FBGEMM)}, then install dlrmx[cpu] or dlrmx[cuda] anew: they overwrite each other"
        )
        return Finding(what, "failed", said, both)
    if torch is None or not fbgemm:
        said = said if torch is None else f"{said}, no fbgemm"
        return Finding(what, "failed", said, "to train here: pip install 'dlrmx[cpu]' or 'dlrmx[cuda]'")
    ((name, found),) = fbgemm.items()
    wanted = PAIRS.get(_series(torch))
    if wanted != _series(found):
        known = ", ".join(f"torch {torch} with fbgemm {fbgemm}" for torch, fbgemm in PAIRS.items())
        return Finding(what, "failed", said, f"these pair: {known}")
    if torch.endswith("+cpu") and name == "fbgemm-gpu":
        return Finding(what, "failed", said, "torch is a build for processors, fbgemm one for CUDA: take dlrmx[cpu]")
    if "+cu" in torch and name == "fbgemm-gpu-cpu":
        return Finding(what, "failed", said, "fbgemm-gpu-cpu has no CUDA kernels: take dlrmx[cuda]")
    return Finding(what, "ok", said)


def _torchx(installed: Callable[[str], str | None]) -> Finding:
    stable, nightly = installed("torchx"), installed("torchx-nightly")
    if stable is not None:
        hint = "pip uninstall torchx torchx-nightly, then install dlrmx anew: both are imported as torchx"
        return Finding("torchx", "failed", f"torchx {stable} of another package (torchx-nightly {nightly})", hint)
    if nightly is None:
        return Finding("torchx", "failed", "torchx-nightly is not installed", "pip install dlrmx")
    return Finding("torchx", "ok", f"torchx-nightly {nightly}")


def _series(text: str) -> str:
    return ".".join(text.partition("+")[0].split(".")[:2])


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def operators(env: Mapping[str, str], worker: tuple[str, ...]) -> Iterator[Finding]:
    """What torch and fbgemm really do here: a step of a table on each device, and a group of one."""
    what = "fbgemm operators"
    try:
        done = subprocess.run(
            [sys.executable, *worker],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SELF_TEST_S,
            check=False,
        )
        found = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        yield Finding(what, "failed", f"their test says nothing: {error}")
        return
    if found is None:
        last = (done.stderr.strip().splitlines() or ["without a word"])[-1]
        yield Finding(what, "failed", f"their test ended with exit code {done.returncode}: {last}", _REINSTALL)
        return
    for device, wrong in found["devices"].items():
        said = f"{device}: {wrong or 'a look-up and an update give the right numbers'}"
        yield Finding(what, "failed" if wrong else "ok", said, _REINSTALL if wrong else "")
    nccl = f"NCCL {found['nccl']}" if found["nccl"] and len(found["devices"]) > 1 else "gloo (no GPU is seen)"
    wrong = found["gloo"]
    yield Finding(
        "exchange", "failed" if wrong else "ok", f"{nccl}{': ' + wrong if wrong else ''}", _GLOO if wrong else ""
    )


def network(env: Mapping[str, str], *, nodes: int) -> Iterator[Finding]:
    """How this machine calls itself, and which interface an exchange takes."""
    host, interfaces = socket.gethostname(), sorted(path.name for path in NETWORKS.glob("*"))
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        yield Finding("host name", "failed", f"{host} is no address here: {error}", _GLOO)
        return
    yield name_finding(host, address, interface_of(address), nodes=nodes)
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        wanted = [name for name in env.get(variable, "").lstrip("=^").split(",") if name]
        if wanted:
            there = all(any(found.startswith(name) for found in interfaces) for name in wanted)
            said = f"{env[variable]}; this machine has {', '.join(interfaces)}"
            yield Finding(variable, "ok" if there else "failed", said, "" if there else "env in the cluster profile")


def name_finding(host: str, address: str, interface: str | None, *, nodes: int) -> Finding:
    """Whether others may be told this machine's own idea of its address."""
    if not address.startswith("127."):
        return Finding("host name", "ok", f"{host} is {address}" + (f", interface {interface}" if interface else ""))
    said = f"{host} is {address}: only this machine itself can be reached so"
    hint = (
        "gloo takes this address, and two such hosts never find each other. dlrmx gives gloo the interface by which "
        "its nodes reach each other; for other programs put the host's real address into /etc/hosts, or set "
        "GLOO_SOCKET_IFNAME"
    )
    return Finding("host name", "note" if nodes > 1 else "ok", said, hint if nodes > 1 else "")


def root_check(root: Path, *, shared: bool = False) -> Finding:
    """Whether runs can be written there: make, write, fsync, rename, read back, delete.

    shared: other nodes do the same there now, so a root that was made for it stays.
    """
    what, folder = f"root {root}", root / f".doctor-{socket.gethostname()}-{os.getpid()}"
    there = root.exists()
    try:
        folder.mkdir(parents=True)
        try:
            _write_and_rename(folder)
            free = shutil.disk_usage(folder).free
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if not there and not shared:
                root.rmdir()
    except OSError as error:
        return Finding(what, "failed", f"cannot be written: {error}", "root in the cluster profile; space, permissions")
    said = f"can be written, {format_bytes(free)} free"
    scarce = free < SCARCE_BYTES
    return Finding(what, "note" if scarce else "ok", said, "a checkpoint may not fit" if scarce else "")


def _write_and_rename(folder: Path) -> None:
    aside, final, data = folder / "aside", folder / "final", os.urandom(PROBE_BYTES)
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(final)
    if final.read_bytes() != data:
        raise OSError(f"{final} does not hold what was written")


def meet(place: Place, token: str) -> Finding:
    """Whether the nodes of a job reach the first one, and by which interface."""
    if place.leads:
        crew = Crew(place, token)
        crew.gather(lambda: False, MEET_S)
        missing, address = sorted(crew.lost), crew.address
        if not missing:
            crew.tell("over", exit_code=0)
        crew.dismiss(0)
        if missing:
            said = f"{', '.join(f'node {node}' for node in missing)} did not come within {MEET_S:g} s"
            return Finding(
                "nodes", "failed", said, f"the nodes must reach {place.host}, port {place.port} and the next"
            )
        return Finding("nodes", "ok", f"all {place.nodes} have come; by {_by(address)}")
    try:
        link = join(place, token, stop_asked=lambda: False, seconds=MEET_S)
    except DlrmxError as error:
        return Finding("nodes", "failed", error.what if hasattr(error, "what") else str(error))
    address = link.own_address
    link.wait(MEET_S)
    link.close()
    return Finding("nodes", "ok", f"reaches node 0 by {_by(address)}")


def _by(address: str | None) -> str:
    address = address and address.removeprefix("::ffff:")  # IPv4, as a socket of both kinds has it
    interface = interface_of(address) if address is not None else None
    return f"{address}, interface {interface}" if interface else str(address)


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def report(node: int, findings: list[Finding]) -> str:
    """A line per finding, as the launcher reads them: srun and kubelets cut long ones."""
    host = socket.gethostname()
    short = [replace(finding, said=finding.said[:MOST_SAID], hint=finding.hint[:MOST_SAID]) for finding in findings]
    return "\n".join(f"{MARK}{json.dumps({'node': node, 'host': host, **asdict(finding)})}}}" for finding in short)


def read_reports(text: str) -> dict[int, list[tuple[str, Finding]]]:
    """(host, finding) of each node in a job's output, whatever else stands there; a torn line is passed over."""
    found: dict[int, list[tuple[str, Finding]]] = {}
    for line in text.splitlines():
        _, mark, rest = line.partition(MARK)
        with suppress(ValueError, KeyError, TypeError):
            entry = json.loads(rest.rstrip()[:-1]) if mark else {}
            if entry:
                node, host = entry.pop("node"), entry.pop("host")
                found.setdefault(node, []).append((host, Finding(**entry)))
    return found


def main() -> int:
    """Examine this node of the job in the environment."""
    text = os.environ.get(JOB_VARIABLE, "")
    spec = JobSpec.from_variable(text)
    profile = read_profile(spec.profile)
    place = place_of(os.environ, profile.nodes)
    findings = [] if place.nodes == 1 else [meet(place, token_of(os.environ, text))]
    print(report(place.node, [*examine(profile), *findings]), flush=True)
    return 0


_REINSTALL = "packages that do not pair, or are broken: pip install --force-reinstall 'dlrmx[cpu]' (or [cuda])"
_GLOO = "put the host's name and address into /etc/hosts, or set GLOO_SOCKET_IFNAME in the profile's env"

if __name__ == "__main__":
    sys.exit(main())
