"""Plays kubelets and job controllers for kube_server.py: runs the pods of its jobs as processes of this machine.

A pod's folders are this machine's: a hostPath volume must be mounted at its own path. Pods share the network, so the
DNS name of a pod is 127.0.0.1. An image is a name in `cluster.images`; the command is what the pod says.
"""

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kube_server import COMMANDS, JOBS, PODS, VOLCANO_JOBS, Cluster, Object, serving

POLL_S = 0.05
POD_PHASES = {True: "Succeeded", False: "Failed"}


@dataclass
class Pod:
    """One pod, its process once it has one."""

    namespace: str
    name: str
    number: int
    process: "subprocess.Popen[bytes] | None" = None
    evicted: bool = False
    told: bool = False  # its end is written down


@contextmanager
def running(cluster: Cluster) -> Iterator[tuple[str, "Nodes"]]:
    """The cluster's URL while it serves and runs what it is given."""
    nodes = Nodes(cluster)
    cluster.created, cluster.deleted = nodes.created, nodes.deleted
    with serving(cluster) as url:
        try:
            yield url, nodes
        finally:
            nodes.close()


@dataclass
class Nodes:
    """All machines of the cluster."""

    cluster: Cluster
    _jobs: dict[tuple[str, str, str], "_Job"] = field(default_factory=dict)

    def created(self, resource: str, made: Object) -> None:
        namespace = made["metadata"]["namespace"]
        if resource in (JOBS, VOLCANO_JOBS):
            job = _Job(self.cluster, resource, made)
            self._jobs[(resource, namespace, made["metadata"]["name"])] = job
            job.thread.start()
        elif resource == COMMANDS:
            self._jobs[(VOLCANO_JOBS, namespace, made["target"]["name"])].order = made["action"]

    def deleted(self, resource: str, gone: Object) -> None:
        job = self._jobs.get((resource, gone["metadata"]["namespace"], gone["metadata"]["name"]))
        if job is not None:
            job.order = "Delete"
            job.thread.join()

    def evict(self, name: str) -> None:
        """Stop a pod as a drained machine or a preemption does: SIGTERM, then SIGKILL when its grace is over."""
        pod = self._pod(name)
        pod.evicted = True
        assert pod.process
        pod.process.send_signal(signal.SIGTERM)

    def kill(self, name: str) -> None:
        """Kill a pod's first process, as a machine out of memory does: the others of the pod go with it."""
        process = self._pod(name).process
        assert process
        process.kill()

    def _pod(self, name: str) -> Pod:
        return next(pod for job in self._jobs.values() for pod in job.pods if pod.name == name and pod.process)

    def close(self) -> None:
        for job in self._jobs.values():
            job.order = "Delete"
            job.grace_s = 0.0
        for job in self._jobs.values():
            job.thread.join()


class _Job:
    """Drives one job through its phases, in a thread of its own."""

    def __init__(self, cluster: Cluster, resource: str, made: Object) -> None:
        self.cluster, self.resource = cluster, resource
        self.volcano = resource == VOLCANO_JOBS
        self.name, self.namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        self.uid, self.spec = made["metadata"]["uid"], made["spec"]
        task = self.spec["tasks"][0] if self.volcano else self.spec
        self.template: Object = task["template"]
        self.number = task["replicas"] if self.volcano else task["completions"]
        self.role = task["name"] if self.volcano else ""
        self.grace_s: float = self.template["spec"]["terminationGracePeriodSeconds"]
        self.pods: list[Pod] = []
        self.order = ""  # of a person: AbortJob, Delete
        self.restarts = 0
        self.phases: list[str] = []
        self.thread = threading.Thread(target=self._drive)

    # ------------------------------------------------------------------------------ phases

    def _drive(self) -> None:
        action = "RestartJob"
        while action == "RestartJob":
            self._phase("Pending")
            self.pods = [self._new_pod(number) for number in range(self.number)]
            while not self._ask() and not all(self._start(pod) for pod in self.pods if pod.process is None):
                time.sleep(POLL_S)
            if not self._ask():
                self._phase("Running")
            action = self._watch()
            during, after = ENDS[action]
            self._phase(during)
            self._end_pods()
            self.restarts += action == "RestartJob"
            self._phase(after)

    def _watch(self) -> str:
        """Wait for the job's end; returns the action that it takes."""
        while True:
            if order := self._ask():
                return order
            for pod in self.pods:
                code = pod.process.poll() if pod.process else None
                if code is not None and not pod.told and (action := self._ended(pod, code)):
                    return action
            if all(pod.told and pod.process and pod.process.returncode == 0 for pod in self.pods):
                return "CompleteJob"
            time.sleep(POLL_S)

    def _ask(self) -> str:
        """What a person wants of the job; nothing so far."""
        now = self.cluster.find(self.resource, self.namespace, self.name)
        if now is not None and now["spec"].get("suspend"):
            return "AbortJob"
        return self.order

    def _ended(self, pod: Pod, code: int) -> str:
        """Write down a pod's end; returns what its job does about it."""
        pod.told = True
        code = 128 - code if code < 0 else code
        end = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": time.strftime("%FT%TZ")}
        status = {"phase": POD_PHASES[code == 0], "containerStatuses": [{"name": "node", "state": {"terminated": end}}]}
        self.cluster.update(PODS, self.namespace, pod.name, {"status": status})
        if code == 0 and not pod.evicted:
            return ""
        return self._volcano_action(pod, code) if self.volcano else self._indexed_action(pod, code)

    def _volcano_action(self, pod: Pod, code: int) -> str:
        """The first policy that fits: an evicted pod's container has an exit code, too."""
        event = "PodEvicted" if pod.evicted else "PodFailed"
        if pod.evicted:
            self.cluster.remove(PODS, self.namespace, pod.name)
        for policy in self.spec["policies"]:
            if policy.get("event") == event or policy.get("exitCode") == code:
                return str(policy["action"])
        return ""

    def _indexed_action(self, pod: Pod, code: int) -> str:
        """A pod that counts as no failure is made again, alone."""
        rules = [rule for rule in self.spec["podFailurePolicy"]["rules"] if _fits(rule, pod, code)]
        if rules and rules[0]["action"] == "FailJob":
            return "TerminateJob"
        self.cluster.remove(PODS, self.namespace, pod.name)
        new = self._new_pod(pod.number)
        self.pods[self.pods.index(pod)] = new
        self._start(new)
        return ""

    def _phase(self, phase: str) -> None:
        self.phases.append(phase)
        if self.volcano:
            status: Object = {"state": {"phase": phase}, "retryCount": self.restarts}
        else:
            condition = {"Completed": "Complete", "Terminated": "Failed", "Aborted": "Suspended"}.get(phase)
            status = {"active": self.number, "ready": self.number if phase == "Running" else 0}
            status |= {"conditions": [{"type": condition, "status": "True"}]} if condition else {}
        self.cluster.update(self.resource, self.namespace, self.name, {"status": status})

    # -------------------------------------------------------------------------------- pods

    def _new_pod(self, number: int) -> Pod:
        name = f"{self.name}-{self.role}-{number}" if self.volcano else f"{self.name}-{number}-{os.urandom(3).hex()}"
        index = "volcano.sh/task-index" if self.volcano else "batch.kubernetes.io/job-completion-index"
        label = "volcano.sh/job-name" if self.volcano else "batch.kubernetes.io/job-name"
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": {**self.template["metadata"]["labels"], label: self.name, index: str(number)},
            "annotations": {**self.template["metadata"].get("annotations", {}), **self._annotations()},
            "ownerReferences": [{"kind": "Job", "name": self.name, "uid": self.uid}],
        }
        self.cluster.put(PODS, {"metadata": metadata, "spec": self.template["spec"], "status": {"phase": "Pending"}})
        self.cluster.logs.pop((self.namespace, name), None)
        return Pod(self.namespace, name, number)

    def _annotations(self) -> dict[str, str]:
        return {"volcano.sh/job-version": str(self.restarts)} if self.volcano else {}

    def _start(self, pod: Pod) -> bool:
        """Start a pod's process, unless its image or a Secret is missing: it then waits, and says for what."""
        (container,) = self.template["spec"]["containers"]
        image = container["image"]
        if image not in self.cluster.images:
            return self._waits(pod, container, "ErrImagePull", f'failed to pull image "{image}": not found')
        missing = [entry["secretKeyRef"] for entry in _sources(container) if not self._secret(entry["secretKeyRef"])]
        if missing:
            return self._waits(pod, container, "CreateContainerConfigError", f'secret "{missing[0]["name"]}" not found')
        for volume in self.template["spec"]["volumes"]:
            if "hostPath" in volume:
                mount = next(one for one in container["volumeMounts"] if one["name"] == volume["name"])
                assert mount["mountPath"] == volume["hostPath"]["path"], "pods share this machine's folders"
        words = [_expanded(word, {}) for word in container["args"]]
        pod.process = subprocess.Popen(
            [sys.executable if words[0] == "python" else words[0], *words[1:]],
            env=self._env(pod, container),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_the_cluster,
        )
        threading.Thread(target=self._keep_log, args=(pod, pod.process), daemon=True).start()
        self.cluster.update(PODS, self.namespace, pod.name, {"status": {"phase": "Running", "containerStatuses": []}})
        return True

    def _waits(self, pod: Pod, container: Object, reason: str, message: str) -> bool:
        waiting = {"waiting": {"reason": reason, "message": message}}
        status = {"containerStatuses": [{"name": "node", "image": container["image"], "state": waiting}]}
        self.cluster.update(PODS, self.namespace, pod.name, {"status": status})
        return False

    def _env(self, pod: Pod, container: Object) -> dict[str, str]:
        """What the container finds: the pod's variables and its controller's, and nothing of ours but the PATH."""
        index = "VC_TASK_INDEX" if self.volcano else "JOB_COMPLETION_INDEX"
        env = {name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS") if name in os.environ}
        env["HOME"] = "/proc/no-home"  # a pod's is nobody's, and nothing of this person's
        env[index] = str(pod.number)
        first = f"{self.name}-{self.role}-0" if self.volcano else f"{self.name}-0"
        for entry in container["env"]:
            if "valueFrom" in entry:
                env[entry["name"]] = self._from(entry["valueFrom"])
            else:
                env[entry["name"]] = _expanded(entry["value"], env).replace(f"{first}.{self.name}:", "127.0.0.1:")
        return env

    def _from(self, source: Object) -> str:
        if "secretKeyRef" in source:
            return self._secret(source["secretKeyRef"])
        path = re.fullmatch(r"metadata\.annotations\['(.+)'\]", source["fieldRef"]["fieldPath"])
        assert path
        return self._annotations().get(path[1], "")

    def _secret(self, wanted: Object) -> str:
        return self.cluster.secrets.get(wanted["name"], {}).get(wanted["key"], "")

    def _keep_log(self, pod: Pod, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout
        with process.stdout as output:
            for line in output:
                self.cluster.write_log(self.namespace, pod.name, line)

    def _end_pods(self) -> None:
        """SIGTERM to all that live, SIGKILL after the grace; their pods go."""
        alive = [pod for pod in self.pods if pod.process and pod.process.poll() is None]
        for pod in alive:
            assert pod.process
            pod.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self.grace_s
        while any(pod.process and pod.process.poll() is None for pod in alive):
            if time.monotonic() > deadline or self.order == "Delete" and self.grace_s == 0:
                for pod in alive:
                    assert pod.process
                    pod.process.kill()
            time.sleep(POLL_S)
        for pod in self.pods:
            if pod in alive or pod.process is None:
                self.cluster.remove(PODS, self.namespace, pod.name)


# Action -> the phases during and after it.
ENDS = {
    "RestartJob": ("Restarting", "Pending"),
    "TerminateJob": ("Terminating", "Terminated"),
    "AbortJob": ("Aborting", "Aborted"),
    "CompleteJob": ("Completing", "Completed"),
    "Delete": ("Terminating", "Terminated"),
}


def _die_with_the_cluster() -> None:
    """No pod outlives the thread that drives its job, as it would where a test is killed: PR_SET_PDEATHSIG."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _fits(rule: Object, pod: Pod, code: int) -> bool:
    if "onPodConditions" in rule:
        return pod.evicted
    codes: Any = rule["onExitCodes"]
    return bool((code in codes["values"]) == (codes["operator"] == "In"))


def _sources(container: Object) -> Iterator[Object]:
    for entry in container["env"]:
        if "secretKeyRef" in entry.get("valueFrom", {}):
            yield entry["valueFrom"]


def _expanded(text: str, env: dict[str, str]) -> str:
    """$(NAME) is that variable, where there is one, and $$ is $: kubernetes/third_party/forked/golang/expansion."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)
