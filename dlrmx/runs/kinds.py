"""Kinds of failures: a table of rules, the first that matches counts. Each says by which words it is known, what the
run's files add to it, and what to try. Pure: `Evidence` holds all that a rule may look at.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dlrmx.units import format_bytes


@dataclass(frozen=True)
class Evidence:
    """What the files of a failed attempt say.

    said: the first cause, then how the run ended, as its node process or its scheduler put it. others: all that the
    ranks said of failures. rank: whose failure came first. hosts: of the ranks that started; spoke: those of them that
    told of a failure themselves. rss_bytes: the fullest worker's memory in the last record, at `rss_step`; workers: on
    each node. tables: bytes of the weights that `rank` holds, by table. clamped: by kind of traffic, numbers outside of
    their wire format in the last record.
    """

    said: str
    others: str = ""
    rank: int | None = None
    step: int | None = None
    hosts: Mapping[int, str] = field(default_factory=dict)
    spoke: frozenset[int] = frozenset()
    rss_bytes: int | None = None
    rss_step: int | None = None
    workers: int | None = None
    tables: Mapping[str, int] = field(default_factory=dict)
    clamped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of failure. signs: searched in what was said; everywhere: by all ranks, and not only first.

    tries: commands; {again} goes on with the run or repeats the evaluation, {run} and {recipe} name them; words in
    capitals are for the reader to fill in.
    """

    name: str
    signs: re.Pattern[str]
    about: Callable[[Evidence], str]
    tries: tuple[str, ...]
    everywhere: bool = False


def kind_of(evidence: Evidence) -> Kind:
    """The first kind whose signs are there; the last, which takes all, where none is."""
    return next(
        kind for kind in KINDS if kind.signs.search(evidence.others if kind.everywhere else evidence.said) is not None
    )


TIMED_OUT = re.compile(
    r"Timed out waiting \d+ms|timeout caused pair closure|Watchdog caught collective operation timeout"
    r"|Timeout\(ms\)=\d+|wait timeout after \d+ms",
    re.IGNORECASE,
)

BAD_IMAGE = re.compile(r"image \S+ cannot be pulled|ErrImagePull|ImagePullBackOff|InvalidImageName")

_AGAIN = "{again}"
_LOGS = "dlrmx logs {run}"
_MORE_NODES = "{again} --nodes N    (more of them: each holds less)"
_DOCTOR = "dlrmx doctor"


def _device_memory(evidence: Evidence) -> str:
    when = "while it built its tables" if evidence.step is None else f"in step {evidence.step:,}"
    return f"rank {evidence.rank} ran out {when}. {_largest(evidence)}".rstrip()


def _largest(evidence: Evidence) -> str:
    """The tables that take most of what the rank holds."""
    if not evidence.tables:
        return ""
    total = sum(evidence.tables.values())
    most = sorted(evidence.tables, key=lambda name: evidence.tables[name], reverse=True)[:3]
    parts = ", ".join(f"{name} {format_bytes(evidence.tables[name])}" for name in most)
    return f"Of its {format_bytes(total)} of table weights: {parts}; optimizer state comes on top."


def _host_memory(evidence: Evidence) -> str:
    return f"the system ran out of memory. {_resident(evidence)}".rstrip()


def _killed(evidence: Evidence) -> str:
    return f"nobody said why: most often the system ran out of memory. {_resident(evidence)}".rstrip()


def _resident(evidence: Evidence) -> str:
    if evidence.rss_bytes is None:
        return "No step was recorded, so it is not known how much the workers held."
    of = f", of which each node has {evidence.workers}" if evidence.workers else ""
    return f"At step {evidence.rss_step or 0:,} the fullest worker held {format_bytes(evidence.rss_bytes)}{of}."


def _late(evidence: Evidence) -> str:
    late = sorted(set(evidence.hosts) - evidence.spoke)
    if not late or not evidence.spoke:
        return "all ranks waited for each other: the network between them stood still"
    named = ", ".join(f"rank {rank} on {evidence.hosts[rank]}" for rank in late[:5])
    more = f" and {len(late) - 5} more" if len(late) > 5 else ""
    return f"the others waited for {named}{more}, which did not come: it hung, or its network did"


def _not_finite(evidence: Evidence) -> str:
    text = "no table or parameter was changed by that step; another try meets the same rows and the same numbers"
    clamped = ", ".join(f"{kind} {count:,}" for kind, count in evidence.clamped.items() if count)
    if not clamped:
        return text
    return f"{text}. Up to step {evidence.rss_step or 0:,} numbers were too large for their wire format: {clamped}"


def _said(text: str) -> Callable[[Evidence], str]:
    return lambda _: text


KINDS: tuple[Kind, ...] = (
    Kind(
        "bad image",
        BAD_IMAGE,
        _said("a node cannot get the container image of the profile"),
        (
            "dlrmx clusters show CLUSTER    (image, image_pull_secrets)",
            "dlrmx cancel {run}    (where it still waits)",
            "{again} -s cluster.image=IMAGE",
        ),
    ),
    Kind(
        "preempted",
        re.compile(r"\bPREEMPTED\b|another job took its nodes|Preempt(ed|ing|ion)|DisruptionTarget|\bEvicted\b"),
        _said("its nodes were taken for other work, and its job was not started again"),
        (_AGAIN,),
    ),
    Kind(
        "time limit",
        re.compile(r"its time limit was over|DeadlineExceeded|\bTIMEOUT\b"),
        _said("the job's time was over before it was done, and what came after the last checkpoint is lost"),
        (_AGAIN, "{again} -s cluster.grace.minutes=N    (where a save takes longer than its grace)"),
    ),
    Kind(
        "stopped before it had saved",
        re.compile(r"did not save within the grace"),
        _said("it was asked to stop, and killed when its grace was over: what came after the last checkpoint is lost"),
        (_AGAIN, "{again} -s cluster.grace.minutes=N    (longer than a save takes)"),
    ),
    Kind(
        "killed on request",
        re.compile(r"killed on request|\bCANCELLED\b"),
        _said("somebody ended it without a save"),
        (_AGAIN,),
    ),
    Kind(
        "out of GPU memory",
        re.compile(r"CUDA out of memory|CUDA error: out of memory|OutOfMemoryError|\w+_STATUS_ALLOC_FAILED"),
        _device_memory,
        ("dlrmx plan {recipe}    (what each rank holds)", _MORE_NODES),
    ),
    Kind(
        "out of host memory",
        re.compile(
            r"OOMKilled|OUT_OF_MEMORY|ran out of host memory|\bMemoryError\b|can't allocate memory|"
            r"Cannot allocate memory|\bENOMEM\b|std::bad_alloc"
        ),
        _host_memory,
        ("dlrmx plan {recipe}    (what each rank holds)", _MORE_NODES),
    ),
    Kind(
        "no shared folder",
        re.compile(r"cannot write the run's folder"),
        _said("its nodes have no such disk, or may not write there"),
        ("dlrmx doctor --cluster CLUSTER    (tries root on every node)", "dlrmx clusters show CLUSTER    (root)"),
    ),
    Kind(
        "disk",
        re.compile(r"No space left|ENOSPC|Disk quota exceeded|EDQUOT|File too large|EFBIG|Read-only file|EROFS"),
        _said("the run's folder cannot be written: make space (or have it made writable), then go on"),
        ("dlrmx checkpoints prune {run}", _AGAIN),
    ),
    Kind(
        "NaN or infinity",
        re.compile(r"\bNonFinite\b|not finite"),
        _not_finite,
        (
            "dlrmx data show {recipe}    (dense columns, and what was wrong with rows)",
            "dlrmx train {recipe} -s train.init_from={run} -s optimizer.dense.lr=LR",
        ),
    ),
    Kind(
        "node failure",
        re.compile(r"node \d+ of \d+ was lost|\bNODE_FAIL\b|a node died|NodeLost|NodeShutdown|did not join within"),
        _said("a machine, its network or its node process went away"),
        (_AGAIN, "dlrmx doctor --cluster CLUSTER    (asks every node)"),
    ),
    Kind("collective timeout", TIMED_OUT, _late, (_AGAIN, "dlrmx doctor --cluster CLUSTER"), everywhere=True),
    Kind("killed", re.compile(r"killed by SIGKILL|\bcode 137\b|died without a word"), _killed, (_AGAIN, _MORE_NODES)),
    Kind(
        "node process lost",
        re.compile(r"its node process \(pid \d+\) was killed"),
        _said("its process or its machine went away from one moment to the next"),
        (_AGAIN,),
    ),
    Kind(
        "network set-up",
        re.compile(r"Unable to (find address|find interface|resolve hostname)|no socket interface found"),
        _said("a worker has no address by which the others could reach it"),
        (_DOCTOR, "dlrmx clusters show CLUSTER    (env: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)"),
    ),
    Kind(
        "crash",
        re.compile(r"\bSIG(SEGV|ABRT|BUS|FPE|ILL)\b|\bcode 13[4569]\b"),
        _said("a worker crashed in native code (SIGBUS: a full /dev/shm, or a mapped file that was cut short)"),
        (_LOGS, _DOCTOR, _AGAIN),
    ),
    Kind(
        "connection lost",
        re.compile(r"Connection (closed|reset) by peer|Broken pipe|pair closure|NCCL|unhandled system error|\bgloo\b"),
        _said("a rank went away, and nobody saw which one"),
        (_LOGS, "dlrmx doctor --cluster CLUSTER"),
    ),
    Kind(
        "GPU fault",
        re.compile(r"CUDA error|uncorrectable ECC|Xid"),
        _said("the device or its driver failed"),
        (_DOCTOR, _AGAIN),
    ),
    Kind(
        "installation",
        re.compile(r"ModuleNotFoundError|ImportError|No module named|undefined symbol|_OpNamespace|cannot train"),
        _said("the Python of the workers lacks something, or its packages do not pair"),
        (_DOCTOR, "dlrmx clusters show CLUSTER    (python, setup)"),
    ),
    Kind(
        "bad input",
        re.compile(r"\bInputError\b|\bexit code 2\b|of another recipe"),
        _said("data, recipe or checkpoint is not as it must be: the cause says where"),
        ("dlrmx check {recipe} --data", _LOGS),
    ),
    Kind("software", re.compile(r""), _said("the log has the traceback"), (_LOGS, _AGAIN)),
)
