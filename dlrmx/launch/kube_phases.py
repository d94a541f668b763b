"""What a Kubernetes job is doing and why it waits or failed, from its objects. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchx.specs import AppState

from dlrmx.launch.manifest import STOPPED_FOR_GOOD

Object = dict[str, Any]

# Volcano's phases: volcano.sh/apis, batch/v1alpha1 JobPhase. A job just made has none.
VOLCANO_STATES = {
    "": AppState.SUBMITTED,
    "Pending": AppState.PENDING,
    "Inqueue": AppState.PENDING,
    "Restarting": AppState.PENDING,
    "Running": AppState.RUNNING,
    "Aborting": AppState.RUNNING,
    "Completing": AppState.RUNNING,
    "Terminating": AppState.RUNNING,
    "Completed": AppState.SUCCEEDED,
    "Aborted": AppState.CANCELLED,
    "Terminated": AppState.FAILED,
    "Failed": AppState.FAILED,
}
ENDED = (AppState.SUCCEEDED, AppState.CANCELLED, AppState.FAILED)
WAITS = (AppState.SUBMITTED, AppState.PENDING)

_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
_BAD_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "ContainerCannotRun")


@dataclass(frozen=True)
class JobPhase:
    """What the cluster says of a job. reason: why it waits or how it failed, in words; restarts: by the cluster."""

    state: AppState
    reason: str = ""
    restarts: int = 0


def phase_of(kind: str, job: Object, pods: Sequence[Object], warnings: Sequence[str] = ()) -> JobPhase:
    """Of a job of that kind (volcano, job) with its pods; `warnings`: messages of the events about the job itself."""
    state, said = _volcano(job) if kind == "volcano" else _indexed(job, pods)
    restarts = int((job.get("status") or {}).get("retryCount") or 0)
    if state in WAITS:
        reason = next(waiting_reasons(pods), "") or (f"no pods can be made: {warnings[-1]}" if warnings else "")
        return JobPhase(state, reason or said, restarts)
    if state == AppState.FAILED:
        ends = list(failures(pods))
        if any(code == STOPPED_FOR_GOOD for code, _ in ends):
            return JobPhase(AppState.CANCELLED, "it was asked to stop", restarts)
        return JobPhase(state, ends[0][1] if ends else said, restarts)
    return JobPhase(state, said or "it was cancelled" if state == AppState.CANCELLED else "", restarts)


def _volcano(job: Object) -> tuple[AppState, str]:
    status = job.get("status") or {}
    state = status.get("state") or {}
    said = ": ".join(part for part in (state.get("reason"), state.get("message")) if part)
    return VOLCANO_STATES.get(state.get("phase") or "", AppState.UNKNOWN), said


def _indexed(job: Object, pods: Sequence[Object]) -> tuple[AppState, str]:
    status = job.get("status") or {}
    true = {entry["type"]: entry for entry in status.get("conditions") or [] if entry.get("status") == "True"}
    for kind, state in (
        ("Complete", AppState.SUCCEEDED),
        ("Failed", AppState.FAILED),
        ("Suspended", AppState.CANCELLED),
    ):
        if kind in true:
            return state, str(true[kind].get("message") or true[kind].get("reason") or "")
    if not status:
        return AppState.SUBMITTED, ""
    running = any((pod.get("status") or {}).get("phase") == "Running" for pod in pods)
    return AppState.RUNNING if running or status.get("ready") else AppState.PENDING, ""


def waiting_reasons(pods: Iterable[Object]) -> Iterator[str]:
    """Why pods do not start, the plainest first."""
    statuses = [(pod, pod.get("status") or {}) for pod in pods]
    for pod, status in statuses:
        for container in status.get("containerStatuses") or []:
            waiting = (container.get("state") or {}).get("waiting") or {}
            yield from _waiting(pod["metadata"]["name"], container, waiting)
    for pod, status in statuses:
        for condition in status.get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                why = condition.get("message") or condition.get("reason")
                yield f"no machine takes {pod['metadata']['name']}: {why}"


def _waiting(pod: str, container: Object, waiting: Object) -> Iterator[str]:
    reason, message = waiting.get("reason", ""), waiting.get("message") or ""
    if reason in _NO_IMAGE:
        yield f"image {container.get('image')} cannot be pulled ({reason}): {message or 'is its name right?'}"
    elif reason in _BAD_CONFIG:
        yield f"{pod} cannot start ({reason}): {message}"


def failures(pods: Iterable[Object]) -> Iterator[tuple[int | None, str]]:
    """(exit code, words) of pods that failed, in the order in which they did."""
    found = []
    for pod in pods:
        status, name = pod.get("status") or {}, pod["metadata"]["name"]
        if status.get("phase") != "Failed":
            continue
        ends = [(one.get("state") or {}).get("terminated") for one in status.get("containerStatuses") or []]
        end: Object = next((one for one in ends if one and one.get("exitCode")), {})
        found.append((end.get("finishedAt") or "~", end.get("exitCode"), _failure(name, status, end)))
    yield from ((code, words) for _, code, words in sorted(found, key=lambda entry: entry[0]))


def _failure(pod: str, status: Object, end: Object) -> str:
    on = f" on {status['nodeName']}" if status.get("nodeName") else ""
    if end.get("reason") == "OOMKilled":
        return f"{pod}{on} ran out of host memory (OOMKilled): raise memory_gib, or use more nodes"
    if status.get("reason"):
        return f"{pod}{on}: {status['reason']}: {status.get('message', '')}".rstrip(": ")
    code = end.get("exitCode")
    return f"{pod}{on} failed" if code is None else f"{pod}{on} ended with exit code {code}"
