"""What an API server refuses, in words. The bodies are a kube-apiserver 1.36's with Volcano 1.9's webhook."""

import json

import pytest

from dlrmx.launch.kube_errors import refusal

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/ads/jobs"
DENIED = 'admission webhook "validatejob.volcano.sh" denied the request: '


def status(code: int, message: str, reason: str = "", **details: str) -> str:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message, "details": details})


FORBIDDEN = (
    'jobs.batch.volcano.sh is forbidden: User "ann" cannot create resource "jobs" in API group "batch.volcano.sh" '
    'in the namespace "ads"'
)
QUEUE = f'{DENIED}unable to find job queue: queues.scheduling.volcano.sh "big" not found'


@pytest.mark.parametrize(
    ("code", "body", "what", "hint"),
    [
        (401, status(401, "Unauthorized"), "does not know who you are", "log in to the cluster again"),
        (
            403,
            status(403, FORBIDDEN, name="x", kind="jobs"),
            "ann may not create jobs in namespace ads",
            'apiGroups: ["batch.volcano.sh"], resources: [jobs], verbs: [create]',
        ),
        (
            404,
            status(404, 'namespaces "ads" not found', name="ads", kind="namespaces"),
            'there is no namespace "ads"',
            "cluster.namespace",
        ),
        (404, "404 page not found\n", "Volcano is not installed", "cluster.kind=job"),
        (400, status(400, QUEUE), 'there is no Volcano queue "big"', "cluster.queue"),
        (400, status(400, f"{DENIED}a task has no name"), "refuses the job: a task has no name", "validatejob"),
        (503, "<html>gateway</html>", "fails (503): <html>gateway", "try again"),
        (422, status(422, 'Job "x" is invalid: spec.a', name="x", kind="Job"), "refuses to POST", ""),
    ],
)
def test_words(code: int, body: str, what: str, hint: str) -> None:
    error = refusal(code, body, "POST", JOBS)
    assert what in error.what
    assert hint in error.hint
    assert error.exit_code == 3
    assert error.status == code


def test_an_object_that_is_not_there_is_told_from_a_path_that_is_not() -> None:
    gone = status(404, 'jobs.batch.volcano.sh "ctr-1" not found', name="ctr-1", kind="jobs")
    assert refusal(404, gone, "GET", f"{JOBS}/ctr-1").names_object
    assert not refusal(404, "404 page not found", "GET", f"{JOBS}/ctr-1").names_object
    other = refusal(404, "404 page not found", "GET", "/apis/batch/v1/namespaces/ads/jobs")
    assert "Kubernetes 1.29" in other.hint
