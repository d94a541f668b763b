"""The script of a Slurm job: options, exports, one command on every node. Pure; a person can read and run it."""

import shlex
from collections.abc import Iterator, Mapping

from dlrmx import __version__
from dlrmx.launch.place import APP_VARIABLE, PORTS, RENDEZVOUS_VARIABLE, START_VARIABLE
from dlrmx.launch.slurm_state import CANNOT_WRITE
from dlrmx.recipe.clusters import workers_per_node
from dlrmx.recipe.profiles import SlurmProfile
from dlrmx.runs.layout import RunPaths

# What marks a job as ours, in its comment.
MARK = "dlrmx "
# Above the ports of usual services, below those that Linux gives to outgoing connections (32768 and up).
FIRST_PORT, NUM_PORTS = 20_000, 12_000
# After the first node process has ended. Node 0's tells the others to end before it does.
SRUN_WAIT_S = 60

TAIL = """\
# 75: it has saved because Slurm asked, or lost a node. Above 128, but for 130: it was killed. It goes on in the next
# start, unless Slurm is ending the job (scancel: COMPLETING by then), or has begun that start already.
if [ "$code" -eq 75 ] || { [ "$code" -gt 128 ] && [ "$code" -ne 130 ]; }; then
  case "$(scontrol show job -o "$SLURM_JOB_ID")" in
    *JobState=CANCELLED* | *JobState=COMPLETING*) ;;
    *" Restarts=${SLURM_RESTART_COUNT:-0} "*) scontrol requeue "$SLURM_JOB_ID" ;;
  esac
fi
exit "$code"
"""


def script(run: RunPaths, profile: SlurmProfile, env: Mapping[str, str], command: str) -> str:
    """The script that runs `command` (quoted already) on each node, with `env` and the place of its node."""
    parts = (
        ["#!/bin/bash", f"# Run {run.name}, as dlrmx {__version__} would submit it: sbatch SCRIPT"],
        [f"#SBATCH {option}" for option in options(run, profile)],
        [""],
        [f"export {name}={quoted(value)}" for name, value in env.items()],
        list(_place(profile)),
        [""],
        list(_body(run, profile, command)),
    )
    return "\n".join(line for part in parts for line in part) + "\n" + TAIL


def options(run: RunPaths, profile: SlurmProfile) -> Iterator[str]:
    """sbatch's options. stdout goes nowhere: the script opens the run's log itself, once its folder is there."""
    own: dict[str, object] = {
        "job-name": run.name,
        "comment": f"{MARK}{run.dir}",
        "nodes": profile.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": _cpus(profile),
        "gpus-per-node": profile.gpus,
        "partition": profile.partition,
        "account": profile.account,
        "qos": profile.qos,
        "time": profile.time,
        "constraint": profile.constraint,
        "exclude": profile.exclude,
        "exclusive": profile.exclusive or None,
        "requeue": True,
        "signal": f"B:USR1@{max(1, int(profile.grace.minutes * 60))}",
        "output": "/dev/null",
    }
    for name, value in {**own, **profile.sbatch}.items():
        if value is not None:
            yield f"--{name}" if value is True else f"--{name}={_option_value(str(value))}"


def quoted(value: str) -> str:
    """A value for bash, on one line where it can be."""
    if value.isprintable():
        return shlex.quote(value)
    escaped = "".join(_escaped(letter) for letter in value)
    return f"$'{escaped}'"


def _escaped(letter: str) -> str:
    if letter in "\\'":
        return "\\" + letter
    if letter.isprintable():
        return letter
    return {"\n": "\\n", "\t": "\\t"}.get(letter, "".join(f"\\x{byte:02x}" for byte in letter.encode()))


def _option_value(value: str) -> str:
    """sbatch reads its lines as a shell would: quotes, and # begins a comment."""
    if not any(letter in value for letter in " \t#'\"\\"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _cpus(profile: SlurmProfile) -> int | None:
    if profile.cpus is not None:
        return profile.cpus
    return None if profile.exclusive else workers_per_node(profile)


def _place(profile: SlurmProfile) -> Iterator[str]:
    yield f'export {APP_VARIABLE}="$SLURM_JOB_ID"'
    yield f'export {START_VARIABLE}="$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}"'
    if profile.nodes > 1:
        host = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
        port = f"$(({FIRST_PORT} + SLURM_JOB_ID * {PORTS} % {NUM_PORTS}))"
        yield f'export {RENDEZVOUS_VARIABLE}="{host}:{port}"'


def _body(run: RunPaths, profile: SlurmProfile, command: str) -> Iterator[str]:
    log = shlex.quote(str(run.launch_log))
    yield f"mkdir -p {shlex.quote(str(run.dir))} && exec >>{log} 2>&1 || exit {CANNOT_WRITE}"
    yield 'echo "=== job $SLURM_JOB_ID, start ${SLURM_RESTART_COUNT:-0}, $(date +"%F %T %z"), $SLURM_JOB_NODELIST"'
    yield "# Slurm asks to save and stop, ahead of the time limit or a preemption: each node's process hears of it."
    yield "asked= step="
    yield "trap 'asked=yes; kill -USR1 $step 2>/dev/null' USR1 TERM"
    yield from profile.setup
    yield "code=75"
    yield 'if [ -z "$asked" ]; then'
    yield f"  srun {' '.join(_step_options(profile))} \\"
    yield f"    {command} &"
    yield "  step=$!"
    yield '  until wait "$step"; code=$?; ! kill -0 "$step" 2>/dev/null; do :; done'
    yield "fi"
    yield ""


def _step_options(profile: SlurmProfile) -> Iterator[str]:
    """srun's. All are given, so that no SLURM_* or SRUN_* variable of a shell has a say."""
    yield from ("--input=none", "--unbuffered", "--export=ALL", "--cpu-bind=none", "--kill-on-bad-exit=0")
    yield f"--wait={SRUN_WAIT_S}"
    if profile.nodes > 1:
        yield "--label"
    if (cpus := _cpus(profile)) is not None:
        yield f"--cpus-per-task={cpus}"
