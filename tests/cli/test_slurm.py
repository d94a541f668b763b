"""A Slurm job on paper: printed without a cluster, without an environment, without leave to write anything."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripted import RECIPE, Dlrmx

PROFILE = "scheduler: slurm\nnodes: 4\ngpus: 8\npartition: h100\nroot: /scratch/{user}/dlrmx\npython: /sw/bin/python\n"
PROGRAM = [sys.executable, "-c", "from dlrmx_cli.main import main; main()"]


def write(folder: Path) -> None:
    (folder / "clusters").mkdir()
    (folder / "clusters" / "big.yaml").write_text(PROFILE)
    (folder / "clicks.yaml").write_text(RECIPE)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, to take a disk's leave away")
def test_a_dry_run_needs_no_environment_no_disk_and_no_network(tmp_path: Path) -> None:
    write(tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    shut = [
        "unshare",
        "--net",
        "--mount",
        "sh",
        "-c",
        'mount -o remount,bind,ro / && cd "$0" && exec "$@"',
        str(tmp_path),
    ]
    words = ["train", "clicks.yaml", "--cluster", "big", "--dry-run"]
    env = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    done = subprocess.run([*shut, *PROGRAM, *words], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("#!/bin/bash\n# Run clicks-1, ")
    assert "#SBATCH --gpus-per-node=8\n" in done.stdout
    assert "\n    /sw/bin/python -m dlrmx.launch.node &\n" in done.stdout
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def test_stray_variables_are_told_on_stderr_alone(
    tmp_path: Path, dlrmx: Dlrmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    plain = dlrmx("train", "clicks.yaml", "--cluster", "big", "-n")
    monkeypatch.setenv("SBATCH_QOS", "high")
    done = dlrmx("train", "clicks.yaml", "--cluster", "big", "-n")
    assert done.stdout == plain.stdout
    assert "SBATCH_QOS is set in this shell: unset it before you pipe this to sbatch" in done.stderr


def test_without_slurm_a_job_is_refused_with_3(tmp_path: Path, dlrmx: Dlrmx, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    words = ["train", "clicks.yaml", "--cluster", "big", "-s", f"cluster.root={tmp_path}/runs", "--name", "mine"]
    for _ in range(2):  # the name that was given is free again
        done = dlrmx(*words)
        assert done.exit_code == 3
        assert done.stderr.startswith("error: there is no sbatch on this machine"), "and says nothing of a start"
    assert dlrmx("runs").stdout == ""
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_job_that_may_have_been_submitted_keeps_its_run(
    tmp_path: Path, dlrmx: Dlrmx, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch gave up waiting for the controller, which may have heard it all the same."""
    write(tmp_path)
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: Batch job submission failed: Socket timed out' >&2\nexit 1\n")
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", str(sbatch.parent))
    done = dlrmx("train", "clicks.yaml", "--cluster", "big", "-s", f"cluster.root={tmp_path}/runs")
    assert done.exit_code == 3
    assert "clicks-1" in dlrmx("runs").stdout


def test_a_file_system_that_is_not_mounted_here_is_not_made_up(tmp_path: Path, dlrmx: Dlrmx) -> None:
    write(tmp_path)
    done = dlrmx("train", "clicks.yaml", "--cluster", "big", "-s", f"cluster.root={tmp_path}/scratch/me/dlrmx")
    assert done.exit_code == 2
    assert f"cluster.root: {tmp_path}/scratch/me is no folder on this machine" in done.stderr
    assert not (tmp_path / "scratch").exists()


def test_a_plan_is_promised_only_where_its_nodes_are_known_here(tmp_path: Path, dlrmx: Dlrmx) -> None:
    """This machine's memory says nothing of theirs; and data that are not prepared say nothing yet."""
    write(tmp_path)
    words = ["clicks.yaml", "--cluster", "big", "-s", f"cluster.root={tmp_path}/runs"]
    known = ["-s", "cluster.memory_gib=64"]
    assert '"plan_hash": null' in dlrmx("train", *words, *known, "-n").stdout
    assert dlrmx("data", "prepare", *words).exit_code == 0
    assert '"plan_hash": null' in dlrmx("train", *words, "-n").stdout
    assert '"plan_hash": "' in dlrmx("train", *words, *known, "-n").stdout
