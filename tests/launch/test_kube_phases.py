"""Jobs and pods as API servers show them, and what is said of them."""

from typing import Any

import pytest
from torchx.specs import AppState

from dlrmx.launch.kube_phases import phase_of


def volcano(phase: str | None, **state: Any) -> dict[str, Any]:
    return {"status": {"state": {"phase": phase, **state}}} if phase is not None else {}


def pod(name: str, phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase, **status}}


def waiting(reason: str, message: str | None = None) -> list[dict[str, Any]]:
    return [{"name": "node", "image": "x:1", "state": {"waiting": {"reason": reason, "message": message}}}]


def ended(code: int, at: str = "2026-11-30T10:00:00Z", reason: str = "Error") -> list[dict[str, Any]]:
    return [{"name": "node", "state": {"terminated": {"exitCode": code, "finishedAt": at, "reason": reason}}}]


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (None, AppState.SUBMITTED),
        ("", AppState.SUBMITTED),
        ("Pending", AppState.PENDING),
        ("Restarting", AppState.PENDING),
        ("Running", AppState.RUNNING),
        ("Completing", AppState.RUNNING),
        ("Aborting", AppState.RUNNING),
        ("Terminating", AppState.RUNNING),
        ("Completed", AppState.SUCCEEDED),
        ("Aborted", AppState.CANCELLED),
        ("Terminated", AppState.FAILED),
        ("Failed", AppState.FAILED),
        ("OfALaterVolcano", AppState.UNKNOWN),
    ],
)
def test_k1_k3_every_phase_of_volcano_is_known(phase: str | None, state: AppState) -> None:
    assert phase_of("volcano", volcano(phase), []).state == state


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([{"type": "Complete", "status": "True"}], AppState.SUCCEEDED),
        ([{"type": "Failed", "status": "True"}], AppState.FAILED),
        ([{"type": "Suspended", "status": "True"}], AppState.CANCELLED),
        ([{"type": "Suspended", "status": "False"}], AppState.PENDING),
        ([{"type": "FailureTarget", "status": "True"}], AppState.PENDING),
        (None, AppState.PENDING),
    ],
)
def test_conditions_of_an_indexed_job(conditions: Any, state: AppState) -> None:
    assert phase_of("job", {"status": {"active": 2, "conditions": conditions}}, []).state == state


def test_an_indexed_job_runs_with_its_pods() -> None:
    job = {"status": {"active": 2}}
    assert phase_of("job", job, [pod("a", "Running"), pod("b", "Pending")]).state == AppState.RUNNING
    assert phase_of("job", {"status": {"active": 2, "ready": 1}}, []).state == AppState.RUNNING, (
        "where pods are not asked"
    )
    assert phase_of("job", {}, []).state == AppState.SUBMITTED


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (
            {"containerStatuses": waiting("ImagePullBackOff", "not found")},
            "image x:1 cannot be pulled (ImagePullBackOff): not found",
        ),
        ({"containerStatuses": waiting("InvalidImageName")}, "is its name right?"),
        (
            {"containerStatuses": waiting("CreateContainerConfigError", 'secret "s3" not found')},
            'a-0 cannot start (CreateContainerConfigError): secret "s3" not found',
        ),
        ({"containerStatuses": waiting("ContainerCreating")}, ""),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/4 nodes: Insufficient gpu"}]},
            "no machine takes a-0: 0/4 nodes: Insufficient gpu",
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, ""),
    ],
)
def test_x22_why_a_job_waits(status: dict[str, Any], reason: str) -> None:
    found = phase_of("volcano", volcano("Pending"), [pod("a-0", "Pending", **status)]).reason
    assert reason in found if reason else found == ""


def test_a_job_without_pods_waits_for_what_events_say() -> None:
    said = ['pods "a-0" is forbidden: exceeded quota: gpus', 'error looking up service account "trainer": not found']
    assert phase_of("volcano", volcano("Pending"), [], said).reason.endswith(said[-1])
    assert phase_of("volcano", volcano("Pending", message="queue is full"), []).reason == "queue is full"


def test_the_first_failure_is_told() -> None:
    late, early = "2026-11-30T10:00:09Z", "2026-11-30T10:00:01Z"
    pods = [
        pod("a-0", "Failed", containerStatuses=ended(1, late)),
        pod("a-1", "Failed", containerStatuses=ended(137, early, "OOMKilled")),
        pod("a-2", "Succeeded", containerStatuses=ended(0, early)),
    ]
    phase = phase_of("volcano", volcano("Failed"), pods)
    assert phase.reason.startswith("a-1 ran out of host memory (OOMKilled)")
    evicted = pod("a-0", "Failed", reason="Evicted", message="low on ephemeral-storage", nodeName="n7")
    assert phase_of("job", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, [evicted]).reason == (
        "a-0 on n7: Evicted: low on ephemeral-storage"
    )


def test_a_job_that_was_asked_to_stop_has_not_failed() -> None:
    job = {"status": {"conditions": [{"type": "Failed", "status": "True", "message": "exit code 76"}]}}
    assert phase_of("job", job, [pod("a-0", "Failed", containerStatuses=ended(76))]).state == AppState.CANCELLED


def test_a_cancelled_job_says_so() -> None:
    assert phase_of("volcano", volcano("Aborted"), []).reason == "it was cancelled"
    assert phase_of("volcano", volcano("Running", message="x"), []).reason == ""


def test_restarts_are_counted() -> None:
    job = {"status": {"state": {"phase": "Running"}, "retryCount": 3}}
    assert phase_of("volcano", job, []).restarts == 3
