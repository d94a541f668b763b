"""The script of a Slurm job, run by bash with stand-ins for srun and scontrol."""

import os
import subprocess
from pathlib import Path

import pytest

from dlrmx.launch.slurm_script import script
from dlrmx.launch.slurm_state import CANNOT_WRITE
from dlrmx.recipe.profiles import SlurmProfile
from dlrmx.runs.layout import RunPaths

# srun's stand-in runs the command on "node 0" alone; scontrol's notes what it was asked.
SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do echo "$1" >>"$OUT/srun"; shift; done\nexec "$@"\n'
SCONTROL = """#!/bin/bash
case "$1" in
  show) [ "$2" = hostnames ] && printf 'n3\\nn4\\n' || echo "JobState=$STATE Restarts=$RESTARTS BatchFlag=1";;
  requeue) echo "$2" >>"$OUT/requeued";;
esac
"""


class Desk:
    """Where scripts are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = RunPaths(folder / "the runs" / "ctr-1")
        for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def start(self, text: str, **environ: str) -> "subprocess.Popen[str]":
        slurm = {
            "SLURM_JOB_ID": "12",
            "SLURM_JOB_NODELIST": "n[3-4]",
            "RESTARTS": "0",
            "STATE": "RUNNING",
            "OUT": str(self.folder),
        }
        env = {"PATH": f"{self.folder}:{os.environ['PATH']}", **slurm, **environ}
        path = self.folder / "script"
        path.write_text(text)
        return subprocess.Popen(["bash", str(path)], env=env, text=True, cwd="/")

    def execute(self, text: str, **environ: str) -> int:
        return self.start(text, **environ).wait(240)

    @property
    def requeued(self) -> bool:
        return (self.folder / "requeued").exists()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def options_of(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_options_are_those_of_the_profile(desk: Desk) -> None:
    """slurm.md 13-16 and X15, X17, X19, X20: one allocation, the run's name, a signal ahead of the end."""
    given = {"partition": "a100", "account": "ads", "qos": "high", "time": "24:00:00", "exclude": "n[7-9]"}
    more = {"constraint": "ib&(a|b)", "exclusive": True, "sbatch": {"mem": "64G", "nodelist": "n1 n2", "no-bell": True}}
    profile = SlurmProfile.model_validate({"scheduler": "slurm", "nodes": 4, "gpus": 8, **given, **more})
    text = script(desk.run, profile, {}, "true")
    assert options_of(text) == [
        "--job-name=ctr-1",
        f'--comment="dlrmx {desk.run.dir}"',
        "--nodes=4",
        "--ntasks-per-node=1",
        "--gpus-per-node=8",
        "--partition=a100",
        "--account=ads",
        "--qos=high",
        "--time=24:00:00",
        "--constraint=ib&(a|b)",
        "--exclude=n[7-9]",
        "--exclusive",
        "--requeue",
        "--signal=B:USR1@300",
        "--output=/dev/null",
        "--mem=64G",
        '--nodelist="n1 n2"',
        "--no-bell",
    ]
    assert "--cpus-per-task=8" in options_of(
        script(desk.run, profile.model_copy(update={"exclusive": False}), {}, "true")
    )
    assert "hetjob" not in text
    assert "set -" not in text, "nothing is echoed (X18)"


ODD = {
    "NCCL_IB_HCA": "mlx5_0,mlx5_1",
    "QUOTES": 'it\'s "$HOME" `id` \\ !x',
    "LINES": "one\ntwo\tthree\n",
    "BELL": "\x07é 漢 \u2028",
    "EMPTY": "",
}


def test_variables_arrive_as_they_are(desk: Desk) -> None:
    """X6, X7, slurm.md 6: srun's --export=K=V cuts at commas."""
    show = desk.folder / "show"
    show.write_text('#!/bin/bash\nfor name in "$@"; do printf "%s\\0" "${!name}"; done >"$OUT/shown"\n')
    show.chmod(0o755)
    text = script(desk.run, SlurmProfile(scheduler="slurm"), ODD, f"'{show}' {' '.join(ODD)} DLRMX_APP DLRMX_START")
    assert desk.execute(text, SLURM_RESTART_COUNT="3", NCCL_IB_HCA="of the shell", RESTARTS="3") == 0
    values = (desk.folder / "shown").read_text().split("\0")[:-1]
    assert values == [*ODD.values(), "12", "12.3"]
    given = (desk.folder / "srun").read_text().split()
    assert "--export=ALL" in given
    assert not [option for option in given if option.startswith("--export=ALL,")]


def test_nodes_meet_at_the_first_host_at_a_port_of_the_job(desk: Desk) -> None:
    """X16, slurm.md 3: a fixed port has two jobs of one node meet."""
    text = script(desk.run, SlurmProfile(scheduler="slurm", nodes=2), {}, "printenv DLRMX_RENDEZVOUS")
    found = []
    for job in ("12", "13", "9999999"):
        assert desk.execute(text, SLURM_JOB_ID=job) == 0
        found.append(desk.run.launch_log.read_text().splitlines()[-1])
    assert found[:2] == ["n3:20096", "n3:20104"]
    assert 20_000 <= int(found[2].removeprefix("n3:")) < 32_000
    assert "scontrol show hostnames" not in script(desk.run, SlurmProfile(scheduler="slurm"), {}, "true")


@pytest.mark.parametrize(
    ("code", "requeued"),
    [(0, False), (1, False), (2, False), (76, False), (130, False), (75, True), (137, True), (143, True)],
)
def test_what_goes_on_is_requeued(desk: Desk, code: int, requeued: bool) -> None:
    text = script(desk.run, SlurmProfile(scheduler="slurm"), {}, f"bash -c 'exit {code}'")
    assert desk.execute(text) == code
    assert desk.requeued == requeued


def test_a_start_that_slurm_has_replaced_requeues_nothing(desk: Desk) -> None:
    """A node that Slurm took for dead: its job runs elsewhere by now."""
    text = script(desk.run, SlurmProfile(scheduler="slurm"), {}, "bash -c 'exit 75'")
    assert desk.execute(text, RESTARTS="1") == 75
    assert not desk.requeued


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETING"])
def test_a_cancelled_job_is_not_requeued(desk: Desk, state: str) -> None:
    """scancel, too, has it save first; and Slurm would requeue a cancelled job that asks for it."""
    text = script(desk.run, SlurmProfile(scheduler="slurm"), {}, "bash -c 'exit 75'")
    assert desk.execute(text, STATE=state) == 75
    assert not desk.requeued


@pytest.mark.parametrize("signal_name", ["USR1", "TERM"])
def test_a_signal_to_the_script_reaches_the_node_process_and_its_end_is_awaited(desk: Desk, signal_name: str) -> None:
    """slurm.md: without a trap the script dies of it, before anybody can save."""
    node = desk.folder / "node"
    node.write_text("#!/bin/bash\ntrap 'sleep 1; exit 75' USR1\ntouch \"$OUT/up\"\nwhile :; do sleep 0.05; done\n")
    node.chmod(0o755)
    process = desk.start(script(desk.run, SlurmProfile(scheduler="slurm"), {}, f"'{node}'"))
    while not (desk.folder / "up").exists():
        assert process.poll() is None
    subprocess.run(["kill", f"-{signal_name}", str(process.pid)], check=True)
    assert process.wait(240) == 75
    assert desk.requeued


def test_a_signal_during_setup_is_not_lost(desk: Desk) -> None:
    profile = SlurmProfile(scheduler="slurm", setup=["kill -USR1 $$", "export LATER=1"])
    assert desk.execute(script(desk.run, profile, {}, "touch $OUT/never")) == 75
    assert desk.requeued
    assert not (desk.folder / "never").exists()


def test_setup_and_its_words_go_to_the_log(desk: Desk) -> None:
    profile = SlurmProfile(scheduler="slurm", setup=["echo loading", "export LOADED=yes"])
    assert desk.execute(script(desk.run, profile, {}, "printenv LOADED")) == 0
    first, *rest = desk.run.launch_log.read_text().splitlines()
    assert first.startswith("=== job 12, start 0, ")
    assert rest == ["loading", "yes"]
    assert desk.execute(script(desk.run, profile, {}, "true"), SLURM_RESTART_COUNT="1") == 0
    assert desk.run.launch_log.read_text().startswith(first), "appended"


def test_a_folder_that_cannot_be_made_ends_it(desk: Desk) -> None:
    desk.run.dir.parent.write_text("a file")
    """Nowhere can it say why but in its exit code."""
    assert desk.execute(script(desk.run, SlurmProfile(scheduler="slurm"), {}, "touch $OUT/never")) == CANNOT_WRITE
    assert not (desk.folder / "never").exists()
