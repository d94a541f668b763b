"""The torchx scheduler of Kubernetes clusters: submits manifests, asks what became of them, stops them, reads logs."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream, StructuredOpts, filter_regex
from torchx.specs import AppDef, AppDryRunInfo, Role

from dlrmx import __version__
from dlrmx.errors import ClusterError, InputError, Unanswered
from dlrmx.launch.app import ROLE
from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.launch.kube_api import KubeApi, connect
from dlrmx.launch.kube_errors import Refused
from dlrmx.launch.kube_phases import ENDED, JobPhase, phase_of
from dlrmx.launch.manifest import MANAGED_BY, RUN, VOLCANO, App, Object, objects
from dlrmx.launch.manifest_yaml import manifest_yaml
from dlrmx.recipe.pods import CONTAINER
from dlrmx.recipe.profiles import KubernetesProfile, read_profile

GONE_PATIENCE_S = 60.0
POLL_S = 0.2


@dataclass
class KubernetesOpts(StructuredOpts):  # type: ignore[misc]
    """Which jobs `list` is about."""

    kind: str = "volcano"
    """volcano or job"""
    context: str | None = None
    """Context of the kubeconfig."""
    namespace: str | None = None
    """Namespace of the jobs."""


@dataclass(frozen=True)
class KubernetesRequest:
    """The objects of one job, the job last; printed as YAML that `kubectl apply -f -` takes."""

    app: App
    run: str
    objects: tuple[Object, ...]

    def __str__(self) -> str:
        title = f"Run {self.run}, as dlrmx {__version__} would submit it: kubectl apply -f -"
        return manifest_yaml(self.objects, title)


class KubernetesScheduler(Scheduler[KubernetesOpts]):  # type: ignore[misc]
    """Jobs of one Kubernetes cluster or several. Nothing here is remembered: all is asked of the API server."""

    def __init__(self, session_name: str) -> None:
        super().__init__("kubernetes", session_name)

    def _run_opts(self) -> Any:
        return KubernetesOpts.as_runopts()

    def _submit_dryrun(self, app: AppDef, cfg: KubernetesOpts) -> AppDryRunInfo[KubernetesRequest, KubernetesOpts]:
        spec = JobSpec.from_variable(app.roles[0].env[JOB_VARIABLE])
        profile = read_profile(spec.profile)
        assert isinstance(profile, KubernetesProfile)
        made = objects(app, profile)
        return AppDryRunInfo(KubernetesRequest(App.of_run(spec.run, profile), spec.run, tuple(made)), str)

    def _validate(self, app: AppDef, scheduler: str, cfg: KubernetesOpts) -> None:
        """torchx demands resources of each role; ours are the profile's."""

    def schedule(self, dryrun_info: AppDryRunInfo[KubernetesRequest, KubernetesOpts]) -> str:
        """Create the objects, in place of a job of that name that has ended. Raises ClusterError and InputError."""
        request: KubernetesRequest = dryrun_info.request
        api = connect(request.app.context, request.app.namespace)
        *others, job = request.objects
        path = jobs_path(request.app.kind, api)
        _make_room(api, path, request)
        made = _create_job(api, path, job)
        owner = {
            "apiVersion": job["apiVersion"],
            "kind": "Job",
            "name": request.app.name,
            "uid": made["metadata"]["uid"],
        }
        try:
            for one in others:
                _create_owned(api, one, owner)
        except ClusterError:
            api.delete(f"{path}/{request.app.name}")  # its pods would wait for each other in vain
            raise
        return request.app.id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """What the cluster says; None where it knows no such job (any more)."""
        app = App.from_id(app_id)
        api = connect(app.context, app.namespace)
        job = api.find(f"{jobs_path(app.kind, api)}/{app.name}")
        if job is None:
            return None
        phase = _phase(api, app, job)
        return DescribeAppResponse(
            app_id, phase.state, num_restarts=phase.restarts, msg=phase.reason, roles=[Role(name=ROLE, image="")]
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """All jobs of ours in a namespace: a run's name is the `name`. Without pods: one request."""
        wanted = KubernetesOpts.from_cfg(cfg or {})
        api = connect(wanted.context, wanted.namespace)
        found = api.get(jobs_path(wanted.kind, api), labelSelector=f"{MANAGED_BY}=dlrmx")
        listed = []
        for job in found.get("items") or []:
            metadata = job["metadata"]
            app = App(wanted.kind, wanted.context, wanted.namespace, metadata["name"])
            phase = phase_of(wanted.kind, job, [])
            run = (metadata.get("annotations") or {}).get(RUN, metadata["name"])
            listed.append(ListAppResponse(app.id, phase.state, name=run))
        return listed

    def _cancel_existing(self, app_id: str) -> None:
        """Have the pods stopped with time to save; the job stays, to be looked at. One that has ended is left alone."""
        app = App.from_id(app_id)
        api = connect(app.context, app.namespace)
        path = f"{jobs_path(app.kind, api)}/{app.name}"
        job = api.find(path)
        if job is None or phase_of(app.kind, job, []).state in ENDED:
            return
        if app.kind == "job":
            api.merge(path, {"spec": {"suspend": True}})
        else:
            api.create(f"/apis/bus.volcano.sh/v1alpha1/namespaces/{api.namespace}/commands", _abort(app, job))

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """The log of the newest pod of node `k`; nothing while there is none."""
        app = App.from_id(app_id)
        api = connect(app.context, app.namespace)
        pods = [pod for pod in _pods(api, app) if pod_number(pod) == k]
        if not pods:
            return ()
        newest = max(pods, key=lambda pod: pod["metadata"].get("creationTimestamp", ""))
        path = f"/api/v1/namespaces/{api.namespace}/pods/{newest['metadata']['name']}/log"
        lines = _lines(api, path, follow=should_tail)
        return filter_regex(regex, lines) if regex else lines


def kubernetes_scheduler(session_name: str, **_: object) -> KubernetesScheduler:
    """Factory for torchx's Runner."""
    return KubernetesScheduler(session_name)


def jobs_path(kind: str, api: KubeApi) -> str:
    group = f"/apis/{VOLCANO}" if kind == "volcano" else "/apis/batch/v1"
    return f"{group}/namespaces/{api.namespace}/jobs"


def pod_number(pod: Object) -> int | None:
    """Which node of its job a pod is."""
    metadata = pod["metadata"]
    for named in (metadata.get("labels") or {}, metadata.get("annotations") or {}):
        for key in ("batch.kubernetes.io/job-completion-index", "volcano.sh/task-index"):
            if str(named.get(key, "")).isdecimal():
                return int(named[key])
    last = metadata["name"].rpartition("-")[2]  # older Volcano says it in the name alone
    return int(last) if last.isdecimal() else None


def _lines(api: KubeApi, path: str, *, follow: bool) -> Iterator[str]:
    """A pod's log; nothing where its container has not begun (400), or the pod is gone."""
    try:
        yield from api.lines(path, follow=follow, container=CONTAINER)
    except Refused as error:
        if error.status not in (400, 404):
            raise


def _phase(api: KubeApi, app: App, job: Object) -> JobPhase:
    pods = _pods(api, app)
    first = phase_of(app.kind, job, pods)
    if first.reason or first.state in ENDED or pods:
        return first
    return phase_of(app.kind, job, pods, _warnings(api, app))


def _pods(api: KubeApi, app: App) -> list[Object]:
    label = "volcano.sh/job-name" if app.kind == "volcano" else "batch.kubernetes.io/job-name"
    found = api.get(f"/api/v1/namespaces/{api.namespace}/pods", labelSelector=f"{label}={app.name}")
    pods: list[Object] = found.get("items") or []
    return pods


def _warnings(api: KubeApi, app: App) -> list[str]:
    """Messages of warnings about the job itself, oldest first; none where events may not be read."""
    try:
        selector = f"involvedObject.kind=Job,involvedObject.name={app.name},type=Warning"
        found = api.get(f"/api/v1/namespaces/{api.namespace}/events", fieldSelector=selector)
    except Refused:
        return []
    events = sorted(found.get("items") or [], key=lambda event: event.get("lastTimestamp") or "")
    return [str(event.get("message", "")) for event in events]


def _make_room(api: KubeApi, path: str, request: KubernetesRequest) -> None:
    """Delete a job of the same run that has ended, and wait until it is gone."""
    path = f"{path}/{request.app.name}"
    before = api.find(path)
    if before is None:
        return
    phase = phase_of(request.app.kind, before, [])
    if phase.state not in ENDED:
        hint = f"`dlrmx watch {request.run}` follows it, `dlrmx cancel {request.run}` saves and stops it"
        raise InputError(f"job {request.app.name} of run {request.run} is live ({phase.state.name.lower()})", hint=hint)
    api.delete(path)
    patience = time.monotonic() + GONE_PATIENCE_S
    while api.find(path) is not None:
        if time.monotonic() > patience:
            raise ClusterError(f"the old job {request.app.name} does not go away", hint="see: kubectl get jobs,pods")
        time.sleep(POLL_S)


def _create_job(api: KubeApi, path: str, job: Object) -> Object:
    """Create the job. An answer that is lost or tells of the server's trouble may hide that it was made: look."""
    name = job["metadata"]["name"]
    try:
        return api.create(path, job)
    except (Refused, Unanswered) as error:
        status = error.status if isinstance(error, Refused) else None
        if status == 409:
            hint = "it was submitted in another shell just now: `dlrmx runs --cluster NAME` lists the jobs"
            raise InputError(f"there is a job {name} already", hint=hint) from error
        if status is not None and status < 500:
            raise
        try:
            made = api.find(f"{path}/{name}")
        except ClusterError:
            raise Unanswered(error.what, hint=error.hint) from error
        if made is None:
            raise
        return made


def _create_owned(api: KubeApi, one: Object, owner: Object) -> None:
    """A Service that goes when its job goes. One of an earlier submission is as good."""
    body = {**one, "metadata": {**one["metadata"], "ownerReferences": [owner]}}
    try:
        api.create(f"/api/v1/namespaces/{api.namespace}/services", body)
    except Refused as error:
        if error.status != 409:
            raise


def _abort(app: App, job: Object) -> Object:
    """Volcano's order to stop a job and keep it, as `vcctl job suspend` gives it."""
    target = {"apiVersion": VOLCANO, "kind": "Job", "name": app.name, "uid": job["metadata"]["uid"]}
    target |= {"controller": True, "blockOwnerDeletion": True}
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": f"{app.name}-abort-", "ownerReferences": [target]},
        "action": "AbortJob",
        "target": target,
    }
