"""What may be said to sbatch, and rules of a Slurm profile that span several settings."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from dlrmx.errors import Problem

if TYPE_CHECKING:
    from dlrmx.recipe.profiles import SlurmProfile

# Options that dlrmx gives itself, and the setting that says the same; "" where nothing may.
OWNED = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "time": "time",
    "constraint": "constraint",
    "exclude": "exclude",
    "exclusive": "exclusive",
    "gpus-per-node": "gpus",
    "cpus-per-task": "cpus",
    "nodes": "nodes",
    "signal": "grace",
    "job-name": "",
    "ntasks": "",
    "ntasks-per-node": "",
    "output": "",
    "error": "",
    "open-mode": "",
    "requeue": "",
    "no-requeue": "",
    "export": "",
    "export-file": "",
    "array": "",
    "clusters": "",
    "chdir": "",
    "input": "",
    "wrap": "",
    "wait": "",
    "parsable": "",
    "test-only": "",
    "hetjob": "",
    "quiet": "",
    "verbose": "",
    "help": "",
    "usage": "",
    "version": "",
    "no-kill": "",
    "uid": "",
    "gid": "",
}
# A variable's value stands in the job's script, which others may read.
SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
LONGEST_GRACE_S = 65_535  # of --signal


def _matches(pattern: str, words: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {words}, not {text!r}")
        return text

    return AfterValidator(check)


Word = Annotated[str, _matches(r"[^\s#'\"\\$`-][^\s#'\"\\$`]*", "one word without quotes")]
Line = Annotated[str, _matches(r"[^\n\r\0]+", "one line")]
Time = Annotated[
    str, _matches(r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}", 'minutes, "HH:MM:SS" or "DAYS-HH:MM:SS"')
]
Option = Annotated[str, _matches(r"[a-z][a-z0-9-]*[a-z0-9]", "an option's long name without the dashes in front")]


def seconds_of(time: str) -> int:
    """Of a time limit as sbatch reads it: M, M:S, H:M:S, DAYS-H, DAYS-H:M or DAYS-H:M:S; 0 is no limit."""
    days, dash, clock = time.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes, seconds = [*parts, 0, 0][:3] if dash else [0, *parts, 0][:3] if len(parts) < 3 else parts
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def slurm_problems(profile: "SlurmProfile") -> Iterator[Problem]:
    """What is wrong with a profile by itself, keyed inside of it."""
    limit = seconds_of(profile.time) if profile.time is not None else 0
    if 0 < limit <= profile.grace.minutes * 60:
        what = (
            f"of {profile.grace.minutes:g} minutes is not under `time`, {profile.time}: a job would save as it starts"
        )
        yield Problem(what, key="grace", hint="lower it, or raise `time`")
    for option, value in profile.sbatch.items():
        key = f"sbatch.{option}"
        if option in OWNED:
            hint = f"say it with `{OWNED[option]}`" if OWNED[option] else "take it out"
            yield Problem("is given by dlrmx itself", key=key, hint=hint)
        elif value is False:
            yield Problem("has no effect when false", key=key, hint="take it out")
        elif isinstance(value, str) and not re.fullmatch(r"[^\n\r\0]+", value):
            yield Problem("must be one line", key=key)
    for name in profile.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            yield Problem("is no name that a script could export", key=f"env.{name}")
        elif SECRET.search(name):
            what = "looks like a secret, and would stand in the job's script"
            yield Problem(what, key=f"env.{name}", hint="take it out and export it in your shell: sbatch passes it on")
    if profile.workers_per_node is not None and profile.gpus not in (None, profile.workers_per_node):
        what = f"is {profile.workers_per_node}, but a node has {profile.gpus} GPUs"
        yield Problem(what, key="workers_per_node", hint="each rank has one GPU: take workers_per_node out")
    if profile.grace.minutes * 60 > LONGEST_GRACE_S:
        yield Problem(f"is at most {LONGEST_GRACE_S // 60} minutes on Slurm", key="grace.minutes")
