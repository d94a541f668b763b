"""The app as a whole: help, exit codes, errors without tracebacks; in processes of their own, as users meet them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlrmx import __version__
from dlrmx.errors import ClusterError, DlrmxError, InputError, UnknownRun
from dlrmx_cli import runs
from dlrmx_cli.output import stderr_is_terminal
from scripted import Dlrmx, MakeRun

PROGRAM = str(Path(sys.executable).with_name("dlrmx"))


def run(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, **environment}
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, env=env, timeout=240, check=False)


def test_help_lists_the_verbs_under_their_headings(dlrmx: Dlrmx) -> None:
    text = dlrmx("--help").stdout
    places = [text.index(f"\n{heading}:") for heading in ("Train", "Before you pay", "Runs", "Library")]
    assert places == sorted(places)
    assert places[0] < text.index("  train ") < places[1] < text.index("  check ") < places[2]
    assert "..." not in text.partition("COMMAND [ARGS]...")[2]  # no verb's help is cut


def test_version() -> None:
    assert run("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["recipes", "list"]])
def test_an_output_that_is_full_is_told_in_words(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=240, check=False
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_verb_is_help_and_an_unknown_one_names_what_resembles_it() -> None:
    assert "Usage: dlrmx" in run().stdout + run().stderr
    unknown = run("recipies", "list")
    assert unknown.returncode == 2
    assert "Did you mean 'recipes'?" in unknown.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("check", "no-such-recipe"), 2),
        (("check", "quickstart", "--no-such-option"), 2),
        (("evaluate", "some-run", "--split", "tset"), 2),
        (("status", "no-such-run"), 4),
        (("resume",), 4),
        (("evaluate", "no-such-run"), 4),
        (("report", "no-such-run"), 4),
        (("checkpoints", "show", "no-such-run"), 4),
        (("clusters", "show", "no-such-cluster"), 2),
    ],
)
def test_what_is_wrong_is_said_on_stderr_with_its_exit_code(words: tuple[str, ...], code: int) -> None:
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 24  # one screen


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("bad"), 2),
        (ClusterError("away"), 3),
        (UnknownRun("none"), 4),
        (DlrmxError("failed", hint="try again"), 1),
        (OSError(28, "No space left on device", "/data/x"), 1),
        (PermissionError(13, "Permission denied", "/data/x"), 1),
        (MemoryError("/data/x: 8 TiB"), 1),
    ],
)
def test_each_error_has_its_code(
    error: Exception, code: int, dlrmx: Dlrmx, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise error

    make_run()
    monkeypatch.setattr(runs, "find", fail)
    done = dlrmx("status")
    assert done.exit_code == code
    assert done.stdout == ""
    assert (str(error) if isinstance(error, DlrmxError) else "/data/x: ") in done.stderr


def test_ctrl_c_before_a_job_runs_is_130(dlrmx: Dlrmx, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "find", interrupt)
    done = dlrmx("status")
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")


def test_our_own_bugs_are_not_hidden(dlrmx: Dlrmx, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(runs, "find", fail)
    assert isinstance(dlrmx("status").exception, AssertionError)


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd '{gone}' && rmdir '{gone}' && '{PROGRAM}' runs"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert "the shell's folder no longer exists" in done.stderr


def test_closed_outputs_are_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert not stderr_is_terminal()


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"'{PROGRAM}' recipes schema | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""
