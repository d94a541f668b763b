"""`dlrmx train --cluster` on Kubernetes: printed without one, and run on the stand-in, seen and unseen."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrmx.launch.place import free_port
from fake_job import RECIPE
from kube_lab import volcano_schema
from kube_nodes import running
from kube_schema import faults
from kube_server import VOLCANO_JOBS, Cluster, serving, write_kubeconfig

DLRMX = str(Path(sys.executable).with_name("dlrmx"))


def dlrmx(folder: Path, *words: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([DLRMX, *words], cwd=folder, env=env, text=True, capture_output=True, check=False)


def write(folder: Path, **profile: Any) -> None:
    """A recipe, and the profile `lab`."""
    (folder / "clusters").mkdir(exist_ok=True)
    (folder / "tiny.yaml").write_text(RECIPE)
    whole = {"scheduler": "kubernetes", "image": "dlrmx:test", "nodes": 2, "workers_per_node": 1, **profile}
    (folder / "clusters" / "lab.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))


@pytest.mark.parametrize("kind", ["volcano", "job"])
def test_a_dry_run_needs_nothing(tmp_path: Path, kind: str) -> None:
    """No environment, no kubeconfig, no network, a folder that cannot be written; and it writes nothing."""
    write(tmp_path, kind=kind, root="/runs", volumes={"runs": {"claim": "runs", "mount": "/runs"}})
    before = sorted(tmp_path.rglob("*"))
    for path in (tmp_path, tmp_path / "clusters"):
        path.chmod(0o555)
    # unshare: no network but a loopback that is down. As root a read-only folder can be written, so count files, too.
    alone = (
        ["unshare", "--net"]
        if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
        else []
    )
    command = [*alone, DLRMX, "train", "tiny.yaml", "--cluster", "lab", "--dry-run", "--name", "tiny-1"]
    done = subprocess.run(command, cwd=tmp_path, env={}, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(tmp_path.rglob("*")) == before
    job = list(yaml.safe_load_all(done.stdout))[-1]
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "tiny-1")
    assert done.stdout.startswith("# Run tiny-1, ")
    if kind == "volcano" and (schema := volcano_schema()):
        assert list(faults(schema, job)) == []


@pytest.mark.parametrize("kind", ["volcano", "job"])
def test_what_is_printed_is_applied_by_kubectl(tmp_path: Path, kind: str) -> None:
    write(tmp_path, kind=kind, root="/runs", volumes={"runs": {"claim": "runs", "mount": "/runs"}})
    printed = dlrmx(tmp_path, "train", "tiny.yaml", "--cluster", "lab", "-n", "--name", "tiny-1").stdout
    if subprocess.run(["which", "kubectl"], capture_output=True).returncode:
        pytest.skip("no kubectl")
    cluster = Cluster(schema=volcano_schema(), rights={"": None})  # kubectl sends no token without TLS
    with serving(cluster) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        command = ["kubectl", "--kubeconfig", str(tmp_path / "kubeconfig"), "--cache-dir", str(tmp_path / "cache")]
        command += ["apply", "--validate=false", "-f", "-"]
        done = subprocess.run(command, input=printed, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    made = cluster.find(VOLCANO_JOBS if kind == "volcano" else "jobs.batch", "ads", "tiny-1")
    assert made
    assert made["spec"] == list(yaml.safe_load_all(printed))[-1]["spec"]


def test_a_cluster_that_is_not_there_is_exit_code_3(tmp_path: Path) -> None:
    write(tmp_path, root="/runs", volumes={"runs": {"claim": "runs", "mount": "/runs"}})
    env = {**os.environ, "KUBECONFIG": str(tmp_path / "none"), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = dlrmx(tmp_path, "train", "tiny.yaml", "--cluster", "lab", env=env)
    assert done.returncode == 3
    assert "no Kubernetes cluster can be told from" in done.stderr
    assert "Traceback" not in done.stderr
    write_kubeconfig(tmp_path / "dead", "http://127.0.0.1:1")
    done = dlrmx(tmp_path, "train", "tiny.yaml", "--cluster", "lab", env={**env, "KUBECONFIG": str(tmp_path / "dead")})
    assert done.returncode == 3
    said = [line for line in done.stderr.splitlines() if not line.startswith(("error:", "    is the VPN up"))]
    assert said == [], "neither of a start, nor a library's words about its retries"
    assert [*(tmp_path / "state").rglob("tiny-*")] == [], "what was never submitted leaves no run"


@pytest.mark.parametrize(("kind", "seen"), [("volcano", True), ("job", False)])
def test_a_run_on_two_pods_from_train_to_report(tmp_path: Path, kind: str, seen: bool) -> None:
    """Real workers. Unseen, all that is known of the run came through a pod's log."""
    volume = tmp_path / "volume"
    volume.mkdir()
    volumes = {"runs": {"host_path": str(volume), "mount": str(volume)}}
    here = {"root_here": str(volume / "runs")} if seen else {}
    write(tmp_path, kind=kind, root=str(volume / "runs"), volumes=volumes, port=free_port(), **here)
    with running(Cluster(schema=volcano_schema())) as (url, _):
        write_kubeconfig(tmp_path / "kubeconfig", url)
        env = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "XDG_STATE_HOME": str(tmp_path / "state")}
        done = dlrmx(tmp_path, "train", "tiny.yaml", "--cluster", "lab", env=env)
        assert done.returncode == 0, done.stderr
        assert "is done at step 3" in done.stdout
        (run,) = (volume / "runs").glob("tiny-*")
        assert (run / "checkpoints" / "step-00000003" / "manifest.json").is_file()
        found = dlrmx(tmp_path, "status", run.name, env=env)
        assert f"{run.name}: done  step 3 of 3" in found.stdout, found.stderr
        assert (str(volume) in found.stdout) == seen
        assert "step-00000003" in found.stdout
        assert "attempt 1, node 1 of 2" in dlrmx(tmp_path, "logs", run.name, env=env).stdout
        assert run.name in dlrmx(tmp_path, "runs", env=env).stdout
        assert dlrmx(tmp_path, "report", run.name, env=env).returncode == 0
