"""What a Kubernetes API server refuses, in plain words with a way out. Pure."""

import json
import re
from typing import Any

from dlrmx.errors import ClusterError

FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
DENIED = re.compile(r'admission webhook "(?P<name>[^"]+)" denied the request: (?P<why>.*)', re.DOTALL)
NO_QUEUE = re.compile(r'unable to find (?:job )?queue.*?"(?P<queue>[^"]+)" not found')
RIGHTS = "docs/kubernetes.md has the Role to ask for"


class Refused(ClusterError):
    """The API server said no. status: of HTTP. names_object: the answer is about an object, not about the path."""

    def __init__(self, what: str, hint: str, status: int, *, names_object: bool) -> None:
        super().__init__(what, hint=hint)
        self.status = status
        self.names_object = names_object


def refusal(status: int, body: str, method: str, path: str) -> Refused:
    """The error of an answer with that HTTP status and body."""
    answer = _status_object(body)
    message = str(answer.get("message") or body.strip() or f"HTTP status {status}")
    details = answer.get("details") or {}
    what, hint = _words(status, message, details, method, path)
    # A missing path, as of an API that is not installed, has no details of an object.
    return Refused(what, hint, status, names_object=bool(details.get("name")) and details.get("kind") != "namespaces")


def _words(status: int, message: str, details: dict[str, Any], method: str, path: str) -> tuple[str, str]:
    if status == 401:
        return (
            "the Kubernetes API server does not know who you are (401)",
            "the kubeconfig's token or certificate is missing or has expired: log in to the cluster again",
        )
    if found := FORBIDDEN.search(message):
        where = f" in namespace {found['namespace']}" if found["namespace"] else ""
        right = f"apiGroups: [{json.dumps(found['group'])}], resources: [{found['resource']}], verbs: [{found['verb']}]"
        return (
            f"{found['user']} may not {found['verb']} {found['resource']}{where} (403)",
            f"the missing right: {right}\n    {RIGHTS}",
        )
    if status == 404 and details.get("kind") == "namespaces":
        return f'there is no namespace "{details.get("name")}"', "set cluster.namespace, or have it created"
    if status == 404 and not details.get("name"):
        return _no_such_api(path)
    if found := NO_QUEUE.search(message):
        return f'there is no Volcano queue "{found["queue"]}"', "set cluster.queue; `kubectl get queues` lists them"
    if found := DENIED.search(message):
        return f"the cluster refuses the job: {found['why'].strip()}", f"refused by {found['name']}"
    if status == 429:
        return f"the Kubernetes API server has too much to do (429): {message}", "try again in a minute"
    if 300 <= status < 400:
        what = f"the Kubernetes API server sends us elsewhere ({status})"
        return what, "does a proxy or a login page answer in its place? Try: kubectl cluster-info"
    if status >= 500:
        return f"the Kubernetes API server fails ({status}): {message}", "try again; if it stays, tell its people"
    return f"the Kubernetes API server refuses to {method} {path} ({status}): {message}", ""


def _no_such_api(path: str) -> tuple[str, str]:
    if path.startswith("/apis/batch.volcano.sh"):
        return (
            "Volcano is not installed in this cluster: it knows no batch.volcano.sh/v1alpha1",
            "have it installed (volcano.sh), or use Kubernetes' own jobs: -s cluster.kind=job",
        )
    return f"the Kubernetes API server does not know {path}", "dlrmx needs Kubernetes 1.29 or newer"


def _status_object(body: str) -> dict[str, Any]:
    """The answer as Kubernetes' Status; empty where it is none, as of a proxy's error page."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
