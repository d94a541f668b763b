"""A job as Kubernetes objects: Volcano's Job, or an Indexed Job with a headless Service. Pure."""

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from torchx.specs import AppDef, Role

from dlrmx.launch.app import ROLE
from dlrmx.launch.place import APP_VARIABLE, RENDEZVOUS_VARIABLE, START_VARIABLE
from dlrmx.launch.strategic_merge import strategic_merge
from dlrmx.launch.telling import TELL_VARIABLE
from dlrmx.recipe.kubernetes import SHM, volume_of_root
from dlrmx.recipe.pods import CONTAINER, Toleration, Volume
from dlrmx.recipe.profiles import KubernetesProfile
from dlrmx.recipe.schema import Minutes

Object = dict[str, Any]

VOLCANO = "batch.volcano.sh/v1alpha1"
# Volcano names a pod <job>-<role>-<n>, and its webhook refuses more than 63 characters.
LONGEST_JOB_AND_ROLE = 42
MANAGED_BY = "app.kubernetes.io/managed-by"
RUN = "dlrmx/run"  # label and annotation: the run; the label may be cut
# Exit codes of a pod after which the whole job begins again: saved on request (evicted, drained, preempted), and
# killed from outside. Whether the run itself has failed too often is for the node process to say, so that no number
# of restarts is too many here. (Volcano turns a maxRetry of 0 into 3.)
BEGIN_AGAIN = (75, 137)
RESTARTS = 1_000
# Beyond the grace: for the agent to see that its workers are gone, and for the node process to write it down.
AFTER_GRACE_S = 30
# The node process was asked to stop, not by its scheduler, and has saved: the job ends, and can be resumed.
STOPPED_FOR_GOOD = 76


@dataclass(frozen=True)
class App:
    """A job, wherever it is asked about. context, namespace: None for the kubeconfig's."""

    kind: str
    context: str | None
    namespace: str | None
    name: str

    @property
    def id(self) -> str:
        return ":".join(quote(part or "", safe="") for part in (self.kind, self.context, self.namespace, self.name))

    @classmethod
    def from_id(cls, app_id: str) -> "App":
        kind, context, namespace, name = (unquote(part) for part in app_id.split(":"))
        return cls(kind, context or None, namespace or None, name)

    @classmethod
    def of_run(cls, run: str, profile: KubernetesProfile) -> "App":
        return cls(profile.kind, profile.context, profile.namespace, job_name(run, ROLE))


def objects(app: AppDef, profile: KubernetesProfile) -> list[Object]:
    """All objects of a job, the job itself last."""
    role = app.roles[0]
    name = job_name(app.name, role.name)
    if profile.kind == "volcano":
        return [_volcano_job(name, app.name, role, profile)]
    return [_service(name, app.name, profile), _indexed_job(name, app.name, role, profile)]


def job_name(run: str, role: str) -> str:
    """A run's name as Kubernetes allows it: [a-z][a-z0-9-]*, short enough. Another run's is another: it ends in a hash
    of what was changed.
    """
    longest = LONGEST_JOB_AND_ROLE - len(role)
    name = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")
    name = name if name[:1].isalpha() else f"run-{name}"
    if name == run and len(name) <= longest:
        return name
    mark = hashlib.sha256(run.encode()).hexdigest()[:6]
    return f"{name[: longest - len(mark) - 1].rstrip('-')}-{mark}"


def label_value(text: str) -> str:
    """A text as a label's value: at most 63 of [A-Za-z0-9._-], ends alphanumeric."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("._-")


def _metadata(name: str, run: str, profile: KubernetesProfile) -> Object:
    labels = {MANAGED_BY: "dlrmx", RUN: label_value(run)}
    namespace = {"namespace": profile.namespace} if profile.namespace else {}
    return {"name": name, **namespace, "labels": labels, "annotations": {RUN: run}}


def _volcano_job(name: str, run: str, role: Role, profile: KubernetesProfile) -> Object:
    spec: Object = {
        "schedulerName": "volcano",
        "minAvailable": role.num_replicas,
        **_given("queue", profile.queue),
        **_given("priorityClassName", profile.priority_class),
        **_given("ttlSecondsAfterFinished", _seconds(profile.keep_finished)),
        "maxRetry": RESTARTS,
        "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
        # The first that fits counts. Without the last, one failed pod would leave the job running for ever.
        "policies": [
            {"event": "PodEvicted", "action": "RestartJob"},
            *({"exitCode": code, "action": "RestartJob"} for code in BEGIN_AGAIN),
            {"exitCode": STOPPED_FOR_GOOD, "action": "AbortJob"},
            {"event": "PodFailed", "action": "TerminateJob"},
        ],
        "tasks": [
            {
                "name": role.name,
                "replicas": role.num_replicas,
                "template": _pod(name, run, role, profile, _volcano_env(name, role, profile)),
            }
        ],
    }
    return {"apiVersion": VOLCANO, "kind": "Job", "metadata": _metadata(name, run, profile), "spec": spec}


def _indexed_job(name: str, run: str, role: Role, profile: KubernetesProfile) -> Object:
    rendezvous = {"name": RENDEZVOUS_VARIABLE, "value": f"{name}-0.{name}:{profile.port}"}
    template = _pod(name, run, role, profile, [rendezvous])
    template["spec"]["subdomain"] = name
    codes = {"containerName": CONTAINER, "values": list(BEGIN_AGAIN)}
    spec: Object = {
        "completions": role.num_replicas,
        "parallelism": role.num_replicas,
        "completionMode": "Indexed",
        "backoffLimit": RESTARTS,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "Ignore", "onExitCodes": {**codes, "operator": "In"}},
                {"action": "FailJob", "onExitCodes": {**codes, "operator": "NotIn"}},
            ]
        },
        **_given("ttlSecondsAfterFinished", _seconds(profile.keep_finished)),
        "template": template,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(name, run, profile), "spec": spec}


def _service(name: str, run: str, profile: KubernetesProfile) -> Object:
    """Gives each pod of an Indexed Job a name that the others can look up."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": name},
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name, run, profile), "spec": spec}


def _volcano_env(name: str, role: Role, profile: KubernetesProfile) -> list[Object]:
    return [
        {"name": RENDEZVOUS_VARIABLE, "value": f"{name}-{role.name}-0.{name}:{profile.port}"},
        # Volcano counts the restarts of a job, and writes the number on each pod.
        {
            "name": START_VARIABLE,
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['volcano.sh/job-version']"}},
        },
    ]


def _pod(name: str, run: str, role: Role, profile: KubernetesProfile, env: list[Object]) -> Object:
    """The pod template; `env` is what tells the pods of each other."""
    volumes = _volumes(profile)
    container: Object = {
        "name": CONTAINER,
        "image": profile.image,
        # `args`, so that the image's entrypoint, an init, stays the first process.
        "args": [_literally(word) for word in (role.entrypoint, *role.args)],
        "env": [
            # torchx adds variables of its own, which say nothing to us.
            *(
                {"name": key, "value": _literally(value)}
                for key, value in role.env.items()
                if not key.startswith("TORCHX_")
            ),
            *(
                {"name": key, "valueFrom": {"secretKeyRef": {"name": entry.secret, "key": entry.key}}}
                for key, entry in profile.secret_env.items()
            ),
            {"name": APP_VARIABLE, "value": App.of_run(run, profile).id},
            *([] if profile.root_here else [{"name": TELL_VARIABLE, "value": "1"}]),
            *env,
        ],
        "ports": [{"name": "rendezvous", "containerPort": profile.port}],
        "resources": _resources(profile),
        "volumeMounts": [mount for _, mount in volumes],
    }
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": (_seconds(profile.grace) or 0) + AFTER_GRACE_S,
        **_given("serviceAccountName", profile.service_account),
        **_given("priorityClassName", profile.priority_class),
        **_given("imagePullSecrets", [{"name": secret} for secret in profile.image_pull_secrets]),
        **_given("nodeSelector", dict(profile.node_selector)),
        **_given("tolerations", [_toleration(entry) for entry in profile.tolerations]),
        "containers": [container],
        "volumes": [volume for volume, _ in volumes],
    }
    pod = {"metadata": {"labels": _metadata(name, run, profile)["labels"], "annotations": {RUN: run}}, "spec": spec}
    patched: Object = strategic_merge(pod, profile.pod_patch)
    return patched


def _resources(profile: KubernetesProfile) -> Object:
    """Requests are the limits, so that a pod gets what plans count on, and is not the first to be evicted."""
    amounts: dict[str, str] = {}
    if profile.cpus is not None:
        amounts["cpu"] = f"{round(1_000 * profile.cpus)}m"
    if profile.memory_gib is not None:
        amounts["memory"] = f"{round(1_024 * profile.memory_gib)}Mi"
    if profile.gpus is not None:
        amounts["nvidia.com/gpu"] = str(profile.gpus)
    return {"requests": dict(amounts), "limits": dict(amounts)} if amounts else {}


def _volumes(profile: KubernetesProfile) -> list[tuple[Object, Object]]:
    """(volume, its mount) of each: shared memory, the profile's, and where none holds the root one that lives as long
    as the pod.
    """
    size = f"{round(1_024 * profile.shared_memory_gib)}Mi"
    found: list[tuple[Object, Object]] = [
        ({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}, {"name": "shm", "mountPath": SHM})
    ]
    for name, volume in profile.volumes.items():
        mount = {"name": f"volume-{name}"[:63].rstrip("-"), "mountPath": volume.mount}
        mount |= {**_given("subPath", volume.sub_path), **_given("readOnly", volume.read_only)}
        found.append(({"name": mount["name"], **_source(volume)}, mount))
    if volume_of_root(profile) is None:
        found.append(({"name": "runs", "emptyDir": {}}, {"name": "runs", "mountPath": profile.root}))
    return found


def _source(volume: Volume) -> Object:
    if volume.claim is not None:
        return {"persistentVolumeClaim": {"claimName": volume.claim, **_given("readOnly", volume.read_only)}}
    if volume.host_path is not None:
        return {"hostPath": {"path": volume.host_path, "type": "Directory"}}
    assert volume.nfs is not None
    server, _, path = volume.nfs.partition(":")
    return {"nfs": {"server": server, "path": path, **_given("readOnly", volume.read_only)}}


def _toleration(entry: Toleration) -> Object:
    return {name: value for name, value in entry.model_dump().items() if value is not None}


def _literally(text: str) -> str:
    """Kubernetes puts variables in place of $(NAME), and reads $$ as $."""
    return text.replace("$", "$$")


def _given(name: str, value: Any) -> Object:
    return {name: value} if value else {}


def _seconds(distance: Minutes | None) -> int | None:
    return None if distance is None else math.ceil(60 * distance.minutes)
