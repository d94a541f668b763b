"""One cluster for all tests here: of DLRMX_TEST_SLURM_CONF, else of our own by slurm-up; skipped where neither is."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_lab import NODES, Lab, find_lab, lab_env

CONF_VARIABLE = "DLRMX_TEST_SLURM_CONF"
_passed: list[str] = []


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The cluster. Tests that kill nodes need one of our own."""
    if conf := os.environ.get(CONF_VARIABLE):
        os.environ["SLURM_CONF"] = conf
        yield Lab(Path(conf), dict(os.environ), None)
        return
    shared = Path(os.environ.get("DLRMX_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    tools = find_lab(shared)
    if tools is None or os.geteuid() != 0:
        why = f"needs root and {shared}/tools/slurm-up" if tools is None else "slurm-up needs root"
        pytest.skip(f"no Slurm cluster: {why} (or {CONF_VARIABLE}=/path/to/slurm.conf)")
    folder = Path(f"/tmp/dlrmx-lab-{os.getpid()}")
    env = lab_env(folder)
    started = subprocess.run([tools / "slurm-up"], env=env, capture_output=True, text=True, check=False, timeout=300)
    try:
        assert started.returncode == 0, started.stderr
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        found = Lab(folder / "slurm.conf", {**env, "SLURM_CONF": str(folder / "slurm.conf")}, tools)
        found.give_time_to_save()
        yield found
    finally:
        os.environ.pop("SLURM_CONF", None)
        subprocess.run([tools / "slurm-down"], env=env, capture_output=True, check=False, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)
        Path(f"{folder}.lock").unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _empty_queue(lab: Lab) -> Iterator[None]:
    """A test that fails leaves no job behind, and no dead node."""
    yield
    if lab.tools is None:
        return
    lab.slurm("scancel", "--user=root", check=False)
    lab.heal()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.passed:
        _passed.append(item.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _passed:
        terminalreporter.write_line(f"Slurm: {len(_passed)} tests passed on a real cluster of {NODES} nodes")
