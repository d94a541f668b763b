"""A stand-in for a Kubernetes API server with Volcano, over real HTTP: objects, rights, admission, pod logs.

`Cluster` holds the objects and is what tests change by hand; kube_nodes.py, given to it, runs its pods. Only what
dlrmx and `kubectl apply` ask for is there. Answers are those of a real server as far as a client can tell: Status
objects with reason and details.
"""

import copy
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import yaml

from kube_schema import UNKNOWN, Schema, faults

Object = dict[str, Any]
Key = tuple[str, str, str]  # resource with its group, namespace, name

JOBS, VOLCANO_JOBS, COMMANDS = "jobs.batch", "jobs.batch.volcano.sh", "commands.bus.volcano.sh"
PODS, SERVICES, EVENTS = "pods", "services", "events"
# Group and version -> its resources: (name, kind).
APIS = {
    "v1": [("pods", "Pod"), ("services", "Service"), ("events", "Event")],
    "batch/v1": [("jobs", "Job")],
    "batch.volcano.sh/v1alpha1": [("jobs", "Job")],
    "bus.volcano.sh/v1alpha1": [("commands", "Command")],
}

REVIEWS = "authorization.k8s.io/v1/selfsubjectaccessreviews"


class Refusal(Exception):
    """What the server answers instead."""

    def __init__(self, code: int, reason: str, message: str, name: str = "", kind: str = "") -> None:
        self.code = code
        details = {"name": name, "kind": kind} if name else {}
        self.body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        self.body |= {"reason": reason, "message": message, "details": details}


@dataclass
class Cluster:
    """All objects, and what there is besides. rights: per token, `verb resource` allowed; None: all."""

    namespaces: set[str] = field(default_factory=lambda: {"default", "ads"})
    queues: set[str] = field(default_factory=lambda: {"default"})
    images: set[str] = field(default_factory=lambda: {"dlrmx:test"})
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    volcano: bool = True
    schema: Schema | None = None  # of Volcano's Job
    rights: dict[str, set[str] | None] = field(default_factory=lambda: {"admin": None})
    objects: dict[Key, Object] = field(default_factory=dict)
    logs: dict[tuple[str, str], bytes] = field(default_factory=dict)  # of pods, by (namespace, name)
    requests: list[str] = field(default_factory=list)
    created: Callable[[str, Object], None] = lambda resource, made: None
    deleted: Callable[[str, Object], None] = lambda resource, gone: None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def find(self, resource: str, namespace: str, name: str) -> Object | None:
        with self.changed:
            return copy.deepcopy(self.objects.get((resource, namespace, name)))

    def list(self, resource: str, namespace: str) -> list[Object]:
        with self.changed:
            return [copy.deepcopy(one) for key, one in sorted(self.objects.items()) if key[:2] == (resource, namespace)]

    def put(self, resource: str, one: Object) -> Object:
        """Create or replace an object."""
        metadata = one["metadata"]
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        with self.changed:
            self.objects[(resource, metadata["namespace"], metadata["name"])] = copy.deepcopy(one)
            self.changed.notify_all()
        return one

    def update(self, resource: str, namespace: str, name: str, changes: Object) -> None:
        """Merge into an object, as a merge patch does; one that is gone stays gone."""
        with self.changed:
            key = (resource, namespace, name)
            if key in self.objects:
                self.objects[key] = merged(self.objects[key], changes)
                self.changed.notify_all()

    def remove(self, resource: str, namespace: str, name: str) -> None:
        """Delete an object, and what it owns."""
        with self.changed:
            gone = self.objects.pop((resource, namespace, name), None)
            self.changed.notify_all()
        if gone is None:
            return
        self.deleted(resource, gone)
        for owned_resource, owned_namespace, owned_name in [*self.objects]:
            one = self.objects.get((owned_resource, owned_namespace, owned_name), {"metadata": {}})
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in one["metadata"].get("ownerReferences", [])):
                self.remove(owned_resource, owned_namespace, owned_name)

    def write_log(self, namespace: str, pod: str, data: bytes) -> None:
        with self.changed:
            self.logs[(namespace, pod)] = self.logs.get((namespace, pod), b"") + data
            self.changed.notify_all()


def merged(base: Any, patch: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(patch, dict):
        return patch
    both = {**base, **{name: merged(base.get(name), value) for name, value in patch.items()}}
    return {name: value for name, value in both.items() if value is not None}


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    """The server's URL while it runs."""
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def write_kubeconfig(path: Path, url: str, token: str = "admin", namespace: str | None = "ads") -> None:
    """A kubeconfig with one context, `lab`."""
    context = {"cluster": "lab", "user": "me", **({"namespace": namespace} if namespace else {})}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": context}],
    }
    path.write_text(yaml.safe_dump(config))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def _answer(self) -> None:
        cluster, url = self.cluster, urlparse(self.path)
        cluster.requests.append(f"{self.command} {url.path}")
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        try:
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            if token not in cluster.rights:
                raise Refusal(401, "Unauthorized", "Unauthorized")
            self._route(token, url.path.strip("/").split("/"), query, body)
        except Refusal as refusal:
            self._send(refusal.code, refusal.body)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def _route(self, token: str, parts: list[str], query: dict[str, str], body: Object | None) -> None:
        cluster = self.cluster
        version, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        group = version.partition("/")[0]
        known = version in APIS and (cluster.volcano or not group.endswith("volcano.sh"))
        if not rest:
            return self._send(200, _discovery(parts, known, cluster))
        if parts == ["apis", *REVIEWS.split("/")] and body is not None:
            return self._send(201, _review(cluster.rights[token], body))
        if not known or rest[0] != "namespaces" or len(rest) < 3:
            # A path that no API serves gets no Status object.
            return self._send_text(404, b"404 page not found\n")
        namespace, plural, *more = rest[1:]
        resource = plural if version == "v1" else f"{plural}.{group}"
        allowed = cluster.rights[token]
        verb = _verb(self.command, more)
        what = "/".join([plural, *more[1:]])
        if allowed is not None and f"{verb} {resource if len(more) < 2 else what}" not in allowed:
            where = f'in API group "{"" if version == "v1" else group}" in the namespace "{namespace}"'
            message = f'{resource} is forbidden: User "{token}" cannot {verb} resource "{what}" {where}'
            raise Refusal(403, "Forbidden", message, "x", plural)
        if self.command == "POST" and namespace not in cluster.namespaces:
            raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found', namespace, "namespaces")
        self._serve(resource, namespace, more, query, body)

    def _serve(self, resource: str, namespace: str, more: list[str], query: dict[str, str], body: Any) -> None:
        cluster = self.cluster
        if self.command == "POST":
            strict = query.get("fieldValidation") == "Strict"
            made = _admitted(cluster, resource, namespace, body, strict=strict)
            cluster.put(resource, made)
            cluster.created(resource, made)
            return self._send(201, made)
        if not more:
            items = [one for one in cluster.list(resource, namespace) if _selected(one, query)]
            return self._send(200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
        found = cluster.find(resource, namespace, more[0])
        if found is None:
            raise Refusal(404, "NotFound", f'{resource} "{more[0]}" not found', more[0], resource.partition(".")[0])
        if more[1:] == ["log"] and found["status"].get("phase") == "Pending":
            waits = f'container "node" in pod "{more[0]}" is waiting to start: ContainerCreating'
            raise Refusal(400, "BadRequest", waits)
        if more[1:] == ["log"]:
            return self._send_log(namespace, more[0], follow=query.get("follow") == "true")
        if self.command == "DELETE":
            cluster.remove(resource, namespace, more[0])
        elif self.command == "PATCH":
            cluster.update(resource, namespace, more[0], body)
            found = cluster.find(resource, namespace, more[0]) or found
        self._send(200, found)

    def _send_log(self, namespace: str, pod: str, *, follow: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent, ended = 0, False
        while not ended:
            with self.cluster.changed:
                log = self.cluster.logs.get((namespace, pod), b"")
                ended = not follow or _has_ended(self.cluster.objects.get((PODS, namespace, pod)))
                if not ended and len(log) == sent:
                    self.cluster.changed.wait(0.5)
            if part := log[sent:]:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            sent = len(log)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, code: int, answer: Object) -> None:
        self._send_text(code, json.dumps(answer).encode(), "application/json")

    def _send_text(self, code: int, data: bytes, kind: str = "text/plain") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _discovery(parts: list[str], known: bool, cluster: Cluster) -> Object:
    """What kubectl reads to learn which kinds there are."""
    if parts == ["api"]:
        return {"kind": "APIVersions", "versions": ["v1"]}
    groups = [version for version in APIS if "/" in version and (cluster.volcano or "volcano" not in version)]
    if parts == ["apis"]:
        named = [{"groupVersion": version, "version": version.partition("/")[2]} for version in groups]
        listed = [
            {"name": one["groupVersion"].partition("/")[0], "versions": [one], "preferredVersion": one} for one in named
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    version = "v1" if parts[0] == "api" else "/".join(parts[1:3])
    if not known:
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
    verbs = ["create", "delete", "get", "list", "patch"]
    resources = [{"name": name, "kind": kind, "namespaced": True, "verbs": verbs} for name, kind in APIS[version]]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _review(allowed: set[str] | None, body: Object) -> Object:
    """Whether the asker may, as a SelfSubjectAccessReview."""
    asked = body["spec"]["resourceAttributes"]
    resource = f"{asked['resource']}/{asked['subresource']}" if asked["subresource"] else asked["resource"]
    right = f"{asked['verb']} {resource}" + (f".{asked['group']}" if asked["group"] else "")
    return {**body, "status": {"allowed": allowed is None or right in allowed, "reason": ""}}


def _verb(method: str, more: list[str]) -> str:
    return {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method) or ("get" if more else "list")


def _selected(one: Object, query: dict[str, str]) -> bool:
    labels = one["metadata"].get("labels", {})
    pairs = [pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair]
    fields = [pair.split("=") for pair in query.get("fieldSelector", "").split(",") if pair]
    return all(labels.get(name) == value for name, value in pairs) and all(
        _field(one, name.split(".")) == value for name, value in fields
    )


def _field(one: Any, path: list[str]) -> Any:
    return _field(one.get(path[0], {}), path[1:]) if path else one


def _has_ended(pod: Object | None) -> bool:
    return pod is None or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


# ---------------------------------------------------------------------------------- admission

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
DNS_1035 = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def _admitted(cluster: Cluster, resource: str, namespace: str, body: Object, *, strict: bool) -> Object:
    """The object as it is stored. Raises Refusal as the API server, its schemas or Volcano's webhook would.

    Not `strict`: fields that the schema does not know are no fault. (A real server then drops them in silence.)
    """
    metadata = body["metadata"]
    name = metadata.get("name") or metadata["generateName"] + uuid.uuid4().hex[:5]
    if cluster.find(resource, namespace, name):
        kind = resource.partition(".")[0]
        raise Refusal(409, "AlreadyExists", f'{resource} "{name}" already exists', name, kind)
    wrong = [fault for fault in _faults(cluster, resource, name, body) if strict or UNKNOWN not in fault]
    if wrong:
        raise Refusal(422, "Invalid", f'{resource} "{name}" is invalid: {"; ".join(wrong)}', name, resource)
    if resource == VOLCANO_JOBS and (why := _webhook(cluster, name, body["spec"])):
        message = f'admission webhook "validatejob.volcano.sh" denied the request: {why}'
        raise Refusal(400, "BadRequest", message)
    return {**body, "metadata": {**metadata, "name": name, "namespace": namespace}}


def _faults(cluster: Cluster, resource: str, name: str, body: Object) -> Iterator[str]:
    if not NAME.fullmatch(name) or len(name) > 253 or resource == SERVICES and not DNS_1035.fullmatch(name):
        yield f"metadata.name: {name!r} is no valid name"
    if resource == VOLCANO_JOBS and cluster.schema is not None:
        yield from faults(cluster.schema, body)
    if resource == JOBS:
        yield from _indexed_job_faults(cluster, name, body["spec"])
    for at, template in _templates(body):
        yield from _pod_faults(at, template)
    yield from _label_faults("metadata", body["metadata"])


def _templates(body: Object) -> Iterator[tuple[str, Object]]:
    spec = body.get("spec", {})
    if "template" in spec:
        yield "spec.template", spec["template"]
    for number, task in enumerate(spec.get("tasks", [])):
        yield f"spec.tasks[{number}].template", task["template"]


def _indexed_job_faults(cluster: Cluster, name: str, spec: Object) -> Iterator[str]:
    if len(f"{name}-{spec['completions'] - 1}") > 63:
        yield "metadata.name: the pods' host names would be longer than 63"
    if spec["template"]["spec"].get("restartPolicy") != "Never":
        yield "spec.template.spec.restartPolicy: only Never is supported with podFailurePolicy"
    containers = {one["name"] for one in spec["template"]["spec"]["containers"]}
    for rule in spec["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes")
        if codes and codes.get("containerName") not in containers:
            yield f"spec.podFailurePolicy: no container {codes.get('containerName')}"
        if codes and (
            codes["values"] != sorted(set(codes["values"])) or codes["operator"] == "In" and 0 in codes["values"]
        ):
            yield f"spec.podFailurePolicy: exit codes {codes['values']}"
    if cluster.schema is not None:  # pods are the same in both kinds of job
        pod = cluster.schema["properties"]["spec"]["properties"]["tasks"]["items"]["properties"]["template"]
        yield from faults(pod, spec["template"], ".spec.template")


def _pod_faults(at: str, template: Object) -> Iterator[str]:
    spec = template["spec"]
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    for volume in volumes:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", volume):
            yield f"{at}.spec.volumes: {volume!r} is no valid name"
    for container in spec["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{at}.spec.containers.volumeMounts: no volume {mount['name']}"
        for port in container.get("ports", []):
            if not 0 < port["containerPort"] <= 65_535 or len(port.get("name", "")) > 15:
                yield f"{at}.spec.containers.ports: {port}"
        limits = container.get("resources", {}).get("limits", {})
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            if name in limits and limits[name] != amount:
                yield f"{at}.spec.containers.resources: {name} is not what the limit is"
        for entry in container.get("env", []):
            if not isinstance(entry.get("value", ""), str):
                yield f"{at}.spec.containers.env: {entry['name']} is no text"
    yield from _label_faults(f"{at}.metadata", template.get("metadata", {}))


def _label_faults(at: str, metadata: Object) -> Iterator[str]:
    for name, value in metadata.get("labels", {}).items():
        if not isinstance(value, str) or not LABEL_VALUE.fullmatch(value):
            yield f"{at}.labels: {name}: {value!r} is no valid label value"


def _webhook(cluster: Cluster, name: str, spec: Object) -> str:
    """Volcano's own checks: volcano.sh pkg/webhooks/admission/jobs/validate/admit_job.go."""
    queue = spec.get("queue", "default")
    if queue not in cluster.queues:
        return f'unable to find job queue: queues.scheduling.volcano.sh "{queue}" not found'
    if spec["minAvailable"] > sum(task["replicas"] for task in spec["tasks"]):
        return "job 'minAvailable' should not be greater than total replicas in tasks"
    for task in spec["tasks"]:
        pod = f"{name}-{task['name']}-{task['replicas'] - 1}"
        if len(pod) > 63:
            return f"create pod with name {pod} validate failed must be no more than 63 characters"
    if not DNS_1035.fullmatch(name):
        return f"the job's name {name} names a service, and is no DNS label"
    events = [policy.get("event") for policy in spec.get("policies", []) if "event" in policy]
    codes = [policy.get("exitCode") for policy in spec.get("policies", []) if "exitCode" in policy]
    if len(set(events)) < len(events) or len(set(codes)) < len(codes) or 0 in codes:
        return "duplicated policies, or an exit code of 0"
    return ""
