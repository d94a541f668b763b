"""The command line answers at once: nothing heavy is imported before a verb needs it."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

DLRMX = str(Path(sys.executable).with_name("dlrmx"))
HEAVY = ("torch", "torchx", "fbgemm_gpu", "numpy", "pyarrow", "sklearn")
BASE = [sys.executable, "-c", "import typer, rich"]
HELP = [DLRMX, "--help"]
CHECK = [DLRMX, "check", "quickstart"]


def cpu_seconds(command: list[str], folder: Path) -> float:
    """CPU time of one run: what a start costs, whoever else is on the machine."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def test_help_and_check_start_fast(tmp_path: Path) -> None:
    commands = {"base": BASE, "help": HELP, "check": CHECK}
    rounds = [{name: cpu_seconds(command, tmp_path) for name, command in commands.items()} for _ in range(8)]
    warm = rounds[1:]  # the first may compile bytecode
    cost = {name: statistics.median(one[name] for one in warm) for name in commands}
    assert cost["help"] <= 3 * cost["base"], cost
    assert cost["check"] <= 6 * cost["base"], cost


def test_the_command_line_loads_nothing_heavy() -> None:
    code = f"import sys, dlrmx_cli.main; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
