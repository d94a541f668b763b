"""Submission and the local scheduler. Jobs run the fake node process, whose workers are fake ones."""

import copy
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torchx.specs import AppState

from dlrmx.errors import ClusterError, InputError, Unanswered, UnknownRun
from dlrmx.launch.app import app_def
from dlrmx.launch.job import JobSpec
from dlrmx.launch.local import LocalOpts, LocalScheduler, app_id_of
from dlrmx.launch.slurm import SlurmOpts, SlurmScheduler
from dlrmx.launch.submit import LocalJob, attach, cancel, dry_run_text, submit
from dlrmx.runs.claim import claim_attempt, create_run, hold
from dlrmx.runs.events import append_event
from dlrmx.runs.registry import find_run
from dlrmx.runs.run_file import read_run, update_run
from dlrmx.runs.state import run_state
from fake_job import FakeJob, make_job, wait_for

LONG = {"steps": 100_000, "step_s": 0.05}
LAUNCHER = """
import sys, time
from dlrmx.launch.job import JobSpec
from dlrmx.launch.submit import submit
from dlrmx.recipe.profiles import read_profile
spec = JobSpec.from_json(sys.argv[1])
submit(spec, read_profile(spec.profile), attached=True)
time.sleep(60)
"""


def created(job: FakeJob) -> FakeJob:
    create_run(Path(job.spec.root), "tiny", job.spec.run, _fingerprint(job))
    return job


def _fingerprint(job: FakeJob) -> str:
    from dlrmx.launch.inputs import parse_recipe
    from dlrmx.recipe.fingerprint import fingerprint

    return fingerprint(parse_recipe(job.spec.recipe))


def test_a_detached_job_is_cancelled_from_anywhere(tmp_path: Path) -> None:
    job = created(make_job(tmp_path, LONG))
    handle = submit(job.spec, job.profile, attached=False)
    assert isinstance(handle, LocalJob)
    assert os.getsid(handle.process.pid) == handle.process.pid, "a session of its own: no terminal's Ctrl-C or hang-up"
    wait_for(lambda: job.events(1, "begin"))
    found = find_run("tiny")
    assert found == job.run
    with pytest.raises(InputError, match=f"already running: pid {handle.process.pid} on "):
        submit(job.spec, job.profile, attached=False)
    scheduler = LocalScheduler("other shell")
    described = scheduler.describe(app_id_of(found))
    assert described
    assert described.state == AppState.RUNNING
    cancel(found)
    assert handle.process.wait() == 75 == handle.poll()
    assert [app.state for app in scheduler.list()] == [AppState.CANCELLED]
    lines = list(scheduler.log_iter(app_id_of(found), "node", regex="rank", should_tail=True))
    assert sorted(lines) == ["rank 0 of 2\n", "rank 1 of 2\n"]
    with pytest.raises(InputError, match="is not running"):
        cancel(found)


def test_a_killed_launcher_stops_an_attached_job(tmp_path: Path) -> None:
    job = created(make_job(tmp_path, LONG))
    with subprocess.Popen([sys.executable, "-c", LAUNCHER, job.spec.to_json()]) as launcher:
        wait_for(lambda: job.events(1, "begin"))
        launcher.kill()
    wait_for(lambda: run_state(job.run).ended)
    state = run_state(job.run)
    assert (state.state, state.exit_code) == ("stopped", 75)
    assert state.checkpoint == job.events(1, "stopped")[0]["step"]
    assert "launcher" in job.events(1, "stop_requested")[0]["by"]


def test_a_job_that_still_starts_can_be_stopped(tmp_path: Path) -> None:
    job = created(make_job(tmp_path, LONG))
    handle = submit(job.spec, job.profile, attached=True)
    handle.stop()
    assert isinstance(handle, LocalJob)
    assert handle.process.wait() == 75
    assert run_state(job.run).state == "stopped"
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_a_job_can_be_killed_before_it_has_saved(tmp_path: Path) -> None:
    job = created(make_job(tmp_path, {**LONG, "save_s": 3600}))
    handle = submit(job.spec, job.profile, attached=True)
    assert isinstance(handle, LocalJob)
    wait_for(lambda: job.events(1, "begin"))
    assert handle.poll() is None
    handle.stop()
    wait_for(lambda: job.events(1, "saving"))
    handle.kill()
    assert handle.poll() == 130
    handle.kill()
    handle.stop()
    assert run_state(job.run).state == "failed"


def test_the_printed_job_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path, {"steps": 3, "note": 'it\'s $HOME, "quoted"\nä'}, settings=["cluster.workers_per_node=1"])
    monkeypatch.setenv("TORCHX_SESSION_NAME", "broken")
    monkeypatch.setenv("TORCHXCONFIG", str(tmp_path / "gone"))
    before = sorted(path for path in tmp_path.rglob("*"))
    text = dry_run_text(job.spec, job.profile)
    assert sorted(path for path in tmp_path.rglob("*")) == before, "nothing is written"
    assert "TORCHX" not in text
    assert text == dry_run_text(job.spec, job.profile)
    done = subprocess.run(["bash"], input=text, text=True, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run_state(job.run).state == "done"


def test_a_dry_run_leaves_the_app_as_it_was(tmp_path: Path) -> None:
    job = make_job(tmp_path, {})
    app = app_def(job.spec, job.profile)
    before = copy.deepcopy(app)
    LocalScheduler("x").submit_dryrun(app, LocalOpts())
    assert app == before
    on_slurm = make_job(tmp_path / "slurm", {}, settings=["cluster.scheduler=slurm"])
    app = app_def(on_slurm.spec, on_slurm.profile)
    before = copy.deepcopy(app)
    SlurmScheduler("x").submit_dryrun(app, SlurmOpts())
    assert app == before


def test_a_resume_notes_what_came_before_it(tmp_path: Path) -> None:
    job = created(make_job(tmp_path, {}))
    claim_attempt(job.run)
    claim_attempt(job.run)
    text = dry_run_text(job.again(resume={"from_step": 10}).spec, job.profile)
    script = text.rpartition("exec ")[0] + 'printf %s "$DLRMX_JOB"'
    done = subprocess.run(["bash"], input=script, text=True, capture_output=True, check=True)
    assert JobSpec.from_variable(done.stdout).resume == {"from_step": 10, "after_attempt": 2}


def test_a_submission_forgets_how_the_last_one_ended(tmp_path: Path) -> None:
    job = created(make_job(tmp_path, {}))
    update_run(job.run, state="failed", exit_code=1, reason="NaN")
    quiet = job.profile.model_copy(update={"python": "/bin/true"})
    handle = submit(job.spec, quiet, attached=False)
    assert isinstance(handle, LocalJob)
    assert handle.process.wait() == 0
    fields = read_run(job.run)
    assert (fields["state"], fields["exit_code"], fields["reason"]) == ("created", None, "")


def test_the_scheduler_reads_everything_from_files(tmp_path: Path) -> None:
    run = create_run(tmp_path / "a folder", "tiny", None, "f")
    scheduler = LocalScheduler("x")
    app = app_id_of(run)
    assert "/" not in app
    described = scheduler.describe(app)
    assert described
    assert described.state == AppState.SUBMITTED
    assert scheduler.describe(app_id_of(type(run)(tmp_path / "none"))) is None
    scheduler.cancel(app)
    attempt = claim_attempt(run)
    update_run(run, state="running", attempt=1)
    with hold(run):
        scheduler.cancel(app)
        scheduler.cancel(app)
    assert attempt.stop_request.exists()
    attempt.node_log(0).write_bytes(b"one\ntwo\n")
    claim_attempt(run).node_log(0).write_bytes(b"three\nunfinished")
    append_event(attempt, "attempt_ended", outcome="failed")
    assert list(scheduler.log_iter(app, "node")) == ["one\n", "two\n", "three\n", "unfinished"]


def test_a_run_must_exist_to_be_submitted(tmp_path: Path) -> None:
    job = make_job(tmp_path, {})
    with pytest.raises(UnknownRun, match="no run at"):
        submit(job.spec, job.profile, attached=False)


def test_a_node_process_that_dies_at_once_is_seen(tmp_path: Path) -> None:
    job = created(make_job(tmp_path, {}))
    broken = job.profile.model_copy(update={"python": "/bin/false"})
    handle = submit(job.spec, broken, attached=True)
    assert wait_for(handle.poll) == 1
    handle.stop()


SBATCH = """\
#!/bin/sh
echo 7 >>{folder}/made
{then}
"""
QUEUE = """\
#!/bin/sh
[ -f {folder}/made ] || exit 0
case "$*" in
  *%k*) echo "7|tiny-1|PENDING|dlrmx {folder}/runs/tiny-1";;
  *) echo "7|PENDING|Priority|N/A||tiny-1";;
esac
"""


def on_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> FakeJob:
    """A job whose sbatch makes a job 7 and then does this."""
    (tmp_path / "bin").mkdir()
    accounts = "#!/bin/sh\n[ -f {folder}/made ] || echo '7|CANCELLED by 0|0:0||tiny-1'\n"
    scripts = {"sbatch": SBATCH, "squeue": QUEUE, "scancel": "#!/bin/sh\nrm {folder}/made\n", "sacct": accounts}
    scripts["scontrol"] = "#!/bin/sh\necho Invalid job id specified >&2; exit 1\n"
    for name, text in scripts.items():
        (tmp_path / "bin" / name).write_text(text.format(folder=tmp_path, then=then))
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return created(make_job(tmp_path, {}, settings=["cluster.scheduler=slurm"]))


@pytest.mark.parametrize("end", ["killed", "garbled"])
def test_a_job_whose_number_was_not_heard_is_found_and_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    job = on_slurm(tmp_path, monkeypatch, "echo submitted" if end == "garbled" else "sleep 60")
    if end == "garbled":
        with pytest.raises(
            Unanswered, match="(?s)printed no job number.*may have been submitted: `dlrmx status tiny-1`"
        ):
            submit(job.spec, job.profile, attached=False)
    else:
        with subprocess.Popen([sys.executable, "-c", LAUNCHER, job.spec.to_json()], start_new_session=True) as launcher:
            wait_for((tmp_path / "made").exists)
            os.killpg(launcher.pid, signal.SIGKILL)
    found = attach(job.run)
    assert found
    assert found.poll() is None
    assert (found.app, found.known) == ("7", True)
    with pytest.raises(InputError, match="job 7 of run tiny-1 is in the queue already"):
        submit(job.spec, job.profile, attached=False)
    cancel(job.run)
    assert not (tmp_path / "made").exists()


def test_a_refused_submission_leaves_a_run_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = on_slurm(tmp_path, monkeypatch, "echo 'sbatch: error: invalid qos' >&2; exit 1")
    update_run(job.run, state="failed", exit_code=1, reason="NaN", job={"scheduler": "slurm", "app": "3"})
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho Invalid job id specified >&2; exit 1\n")
    before = read_run(job.run)
    with pytest.raises(ClusterError, match="invalid qos"):
        submit(job.spec, job.profile, attached=False)
    assert read_run(job.run) == before
