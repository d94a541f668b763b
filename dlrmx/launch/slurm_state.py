"""What a Slurm job is doing, from what squeue, sacct and scontrol print, in every version from 20.11 on. Pure.

All are asked for text with named fields: their JSON changes from version to version.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchx.specs import AppState

SQUEUE_FORMAT = "%i|%T|%r|%S|%N|%j"  # job, state, reason, start, nodes, name
SACCT_FIELDS = "JobID,State,ExitCode,NodeList,JobName"

STATES = {
    AppState.PENDING: "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD",
    AppState.RUNNING: "RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT RESIZING POWER_UP_NODE",
    AppState.SUCCEEDED: "COMPLETED",
    AppState.CANCELLED: "CANCELLED REVOKED",
    AppState.FAILED: "FAILED TIMEOUT DEADLINE OUT_OF_MEMORY NODE_FAIL BOOT_FAIL LAUNCH_FAILED RECONFIG_FAIL PREEMPTED",
}
# Ends after which Slurm runs a job again, where it may.
RUN_AGAIN = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED")
ENDED = (AppState.SUCCEEDED, AppState.CANCELLED, AppState.FAILED)

WORDS = {
    "TIMEOUT": "its time limit was over: raise `time`, or `grace` where it did not save in time",
    "OUT_OF_MEMORY": "a node ran out of host memory: ask for more (sbatch.mem), or use more nodes",
    "NODE_FAIL": "a node died",
    "BOOT_FAIL": "a node did not boot",
    "PREEMPTED": "another job took its nodes",
    "DEADLINE": "its deadline was over",
    "LAUNCH_FAILED": "Slurm could not start it on its nodes",
}
# What sacct calls a job whose name has not reached the accounts yet.
NAMELESS = "allocation"
# Exit code of the job's script (EX_CANTCREAT) where it could open no log, and so say nothing itself.
CANNOT_WRITE = 73
UNWRITABLE = "its node cannot write the run's folder: `root` must be on a disk that all nodes and this machine see"
# Reasons for which a job will not start before somebody does something, and what.
STUCK = {
    "PartitionTimeLimit": "`time` is above the partition's limit",
    "PartitionNodeLimit": "`nodes` is above the partition's limit, or the partition has not so many",
    "PartitionDown": "the partition is down: ask the administrator",
    "PartitionInactive": "the partition is inactive: ask the administrator",
    "AccountNotAllowed": "`account` may not use this partition",
    "InvalidAccount": "`account` is none",
    "InvalidQOS": "`qos` is none, or not for this account",
    "QOSNotAllowed": "`qos` may not use this partition",
    "JobHeldUser": "it is held: scontrol release",
    "JobHeldAdmin": "the administrator holds it: ask",
    "BadConstraints": "no node has what `constraint`, `gpus` and the like ask for",
    "ReqNodeNotAvail": "nodes that it needs are down or reserved: sinfo -R",
}


@dataclass(frozen=True)
class JobState:
    """A job at one moment. slurm: its word; reason: why it waits or how it failed, in words; name: its run's, or ""."""

    state: AppState
    slurm: str
    reason: str = ""
    nodes: str = ""
    exit_code: int | None = None
    restarts: int | None = None
    name: str = ""


def app_state(slurm: str) -> AppState:
    """Of a state as any version spells it: `CANCELLED by 1000`, `COMPLETING+`, `NODE_FAIL`."""
    word = plain(slurm)
    return next((state for state, words in STATES.items() if word in words.split()), AppState.UNKNOWN)


def plain(slurm: str) -> str:
    """The first word: flags and by whom are cut off."""
    return re.split(r"[ +,]", slurm.strip(), maxsplit=1)[0].upper()


def from_squeue(output: str, job: str) -> JobState | None:
    """Of `squeue -h -t all -o SQUEUE_FORMAT -j JOB`; None where it does not list the job."""
    found = []
    for line in output.splitlines():
        fields = line.split("|")
        if len(fields) in (5, 6) and _is_part(fields[0], job):
            _, slurm, why, start, nodes, *name = (text.strip() for text in fields)
            state = app_state(slurm)
            reason = waits_for(why, start) if state == AppState.PENDING else _end_words(slurm)
            found.append(JobState(state, plain(slurm), reason, nodes, name="".join(name)))
    return worst(found)


def from_sacct(output: str, job: str) -> JobState | None:
    """Of `sacct -n -P -o SACCT_FIELDS -j JOB`; None where it knows no such job."""
    jobs: list[JobState] = []
    steps: list[JobState] = []
    for line in output.splitlines():
        fields = line.split("|")
        if len(fields) in (4, 5) and _is_part(fields[0].partition(".")[0], job):
            part, slurm, exit_code, nodes, *name = fields
            name = [] if name == [NAMELESS] else name
            code = _code(exit_code)
            state = JobState(app_state(slurm), plain(slurm), _end_words(slurm, code), nodes, code, name="".join(name))
            (steps if "." in part else jobs).append(state)
    whole = worst(jobs)
    if whole is None or whole.state != AppState.FAILED:
        return whole
    telling = [step for step in steps if step.slurm == "OUT_OF_MEMORY"]
    return (
        replace(whole, slurm=telling[0].slurm, reason=telling[0].reason, nodes=telling[0].nodes) if telling else whole
    )


def from_scontrol(output: str) -> JobState | None:
    """Of `scontrol show job -o JOB`: the only one that says whether Slurm will run the job again."""
    found = []
    for line in output.splitlines():
        fields = dict(
            re.findall(
                r"(?:^|\s)(JobId|JobName|JobState|Reason|StartTime|NodeList|ExitCode|Requeue|Restarts)=(\S*)", line
            )
        )
        if "JobState" not in fields:
            continue
        slurm, code = plain(fields["JobState"]), _code(fields.get("ExitCode", ""))
        state, reason = app_state(slurm), _end_words(slurm, code)
        if slurm in RUN_AGAIN and fields.get("Requeue") == "1":
            state, reason = AppState.PENDING, f"{reason}: Slurm runs it again"
        elif state == AppState.PENDING:
            reason = waits_for(fields.get("Reason", ""), fields.get("StartTime", ""))
        restarts = int(fields["Restarts"]) if fields.get("Restarts", "").isdecimal() else None
        nodes = "" if fields.get("NodeList") in (None, "(null)") else fields["NodeList"]
        found.append(JobState(state, slurm, reason, nodes, code, restarts, fields.get("JobName", "")))
    return worst(found)


def worst(parts: Sequence[JobState]) -> JobState | None:
    """Of a job's parts, where it has several: one that failed fails all, one that lives keeps it alive."""
    order = (AppState.FAILED, AppState.CANCELLED, AppState.RUNNING, AppState.PENDING, AppState.UNKNOWN)
    for state in order:
        for part in parts:
            if part.state == state:
                return part
    return parts[0] if parts else None


def waits_for(reason: str, start: str) -> str:
    """Why a job waits, and until when Slurm expects it to."""
    word = reason.strip("()").split(",")[0]
    if word == "BeginTime":
        text = "Slurm holds a job back for a while after each requeue"
    elif word in STUCK:
        text = f"{word}: {STUCK[word]}"
    elif word in ("None", ""):
        text = "Slurm has not looked at it yet"
    else:
        text = f"waits for {word}"
    return text if start in ("N/A", "Unknown", "", "(null)") else f"{text}; expected to start at {start}"


def _end_words(slurm: str, code: int | None = None) -> str:
    return UNWRITABLE if code == CANNOT_WRITE else WORDS.get(plain(slurm), "")


def _is_part(name: str, job: str) -> bool:
    """Whether a row's name is that of the job, or of a part of it: 12, 12+1, 12_3, 12_[4-7]."""
    return re.fullmatch(rf"{re.escape(job)}([+_].*)?", name.strip()) is not None


def _code(text: str) -> int | None:
    """Slurm's `code:signal` as a shell has it."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        return None
    code, number = int(match[1]), int(match[2])
    return 128 + number if number else code


def jobs_of(output: str, mark: str) -> Iterable[tuple[str, str, AppState, str]]:
    """(job, run's name, state, run's folder) of `squeue -h -t all -o "%i|%j|%T|%k"`: those marked as ours."""
    for line in output.splitlines():
        fields = line.split("|", 3)
        if len(fields) == 4 and fields[3].startswith(mark):
            yield fields[0], fields[1], app_state(fields[2]), fields[3].removeprefix(mark).strip()
