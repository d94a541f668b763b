"""Slurm's commands, run with words for what goes wrong: not there, not answering, refusing."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from dlrmx.errors import ClusterError, Unanswered

PATIENCE_S = 60
# Of the shell's SLURM_* variables these say where the cluster is; the others steer jobs.
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_TIME_FORMAT")
STEERING = ("SBATCH_", "SRUN_", "SLURM_", "SALLOC_", "SQUEUE_", "SACCT_", "SCANCEL_")

# What Slurm says when it refuses a job, and which setting it is about.
REFUSALS = {
    "invalid partition": "partition in the cluster profile; `sinfo -s` lists them",
    "invalid account": "account in the cluster profile; `sacctmgr show user $USER withassoc` lists yours",
    "invalid qos": "qos in the cluster profile; `sacctmgr show qos` lists them",
    "time limit": "time in the cluster profile; `sinfo -o '%P %l'` shows each partition's limit",
    "node configuration is not": "no nodes have what nodes, gpus, cpus, constraint and sbatch ask for: sinfo -N -l",
    "more processors": "no node has so many processors: cpus (one per worker) in the cluster profile",
    "node count": "nodes in the cluster profile; `sinfo -s` shows how many each partition has",
    "feature": "constraint in the cluster profile; `sinfo -o '%P %f'` shows what there is",
    "generic resource": "gpus in the cluster profile; `sinfo -o '%P %G'` shows what there is",
    "gres": "gpus in the cluster profile; `sinfo -o '%P %G'` shows what there is",
    "qos": "a limit of the qos or account: `sacctmgr show qos`, `squeue -u $USER`",
    "unrecognized option": "sbatch in the cluster profile: this Slurm has no such option",
    "invalid --": "sbatch in the cluster profile",
    "exclude": "exclude in the cluster profile; `sinfo -N` lists the nodes",
}
UNREACHABLE = (
    "unable to contact",
    "connection refused",
    "could not establish",
)
# What was asked may have arrived.
UNANSWERED = ("timed out", "zero bytes")
# Of what keeps the accounts, where the controller may answer all the same.
ACCOUNTS_AWAY = ("problem talking to the database", "slurm_persist_conn_open", "persistinit")


class NoSuchJob(ClusterError):
    """The controller does not know the job, or not any more."""


class NoAccounting(ClusterError):
    """The cluster keeps no accounts."""


class AccountsAway(ClusterError):
    """What keeps the cluster's accounts does not answer."""


def slurm(*words: str, stdin: str | None = None) -> str:
    """What a command of Slurm's prints. Raises ClusterError (NoSuchJob, NoAccounting, Unanswered), in plain words."""
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            env=clean(os.environ),
            timeout=PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        hint = "submit from a login node of the cluster; `--dry-run` prints the job's script anywhere"
        raise ClusterError(f"there is no {words[0]} on this machine", hint=hint) from None
    except OSError as error:  # no right to run it, or it is no program
        hint = f"`which {words[0]}` says where it is; another one may have to come first in PATH"
        raise ClusterError(f"{words[0]} cannot be run on this machine: {error.strerror or error}", hint=hint) from None
    except subprocess.TimeoutExpired:
        raise Unanswered(f"{words[0]} did not answer within {PATIENCE_S} s", hint=_ASK) from None
    if done.returncode < 0:
        raise Unanswered(f"{words[0]} was killed by signal {-done.returncode} before it had answered", hint=_ASK)
    if done.returncode != 0:
        raise _error(words, done.stderr.strip() or f"it ended with exit code {done.returncode}")
    return done.stdout


def job_number(said: str) -> str:
    """The job in what `sbatch --parsable` printed: `12` or `12;cluster` in the last line; a site may greet before it.

    Raises Unanswered where none is there.
    """
    last = said.strip().rpartition("\n")[2].partition(";")[0].strip()
    if not last.isdecimal():
        hint = "`squeue --me` shows whether it is in the queue"
        raise Unanswered(f"sbatch printed no job number, but {said.strip()[:200]!r}", hint=hint)
    return last


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """The shell's environment without what would overrule the job's own options."""
    strays = stray_variables(environ)
    return {name: value for name, value in environ.items() if name not in strays}


def stray_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables of the shell that would overrule options of the job or change what Slurm's commands print."""
    return sorted(name for name in environ if name.startswith(STEERING) and name not in KEPT)


def _error(words: Sequence[str], said: str) -> ClusterError:
    lower = said.lower()
    if "invalid job id" in lower:
        return NoSuchJob(f"Slurm knows no job {words[-1]} (any more)")
    if "accounting storage is disabled" in lower or "slurm accounting storage" in lower:
        return NoAccounting(f"{words[0]}: {said}")
    if any(sign in lower for sign in ACCOUNTS_AWAY):
        return AccountsAway(f"Slurm's accounts (slurmdbd) do not answer: {_last(said)}", hint=_ASK)
    if any(sign in lower for sign in (*UNREACHABLE, *UNANSWERED)):
        error_type = Unanswered if any(sign in lower for sign in UNANSWERED) else ClusterError
        return error_type(f"the Slurm controller does not answer: {_last(said)}", hint=_ASK)
    hint = next((hint for sign, hint in REFUSALS.items() if sign in lower), "")
    verb = "refuses the job" if words[0] == "sbatch" else "fails"
    return ClusterError(f"{words[0]} {verb}: {_last(said)}", hint=hint)


def _last(said: str) -> str:
    """The words themselves, without the program's name before them."""
    return "; ".join(re.sub(r"^(s\w+: )?((error|fatal): )?", "", line) for line in said.splitlines() if line)


_ASK = "try `scontrol ping`; where that fails, too, the cluster is down: ask its administrator"
