"""The settings of a cluster profile, one class per scheduler: a profile has its own scheduler's keys and no others."""

from typing import Any, Literal

from dlrmx.recipe.node import MOST, Node
from dlrmx.recipe.pods import Image, Label, LabelKey, LabelValue, ObjectName, SecretKey, Toleration, Volume
from dlrmx.recipe.sbatch import Line, Option, Time, Word
from dlrmx.recipe.schema import Minutes, Settings, section, setting

CPU_WORKERS = 2


class Profile(Settings):
    """What profiles of all schedulers share. Nothing in a profile changes what is trained."""

    scheduler: str
    nodes: int = setting("machines", 1, resume="free", ge=1)
    workers_per_node: int | None = setting(
        f"processes per node, each one rank; default: the node's GPUs, else this machine's, else {CPU_WORKERS}",
        None,
        resume="free",
        ge=1,
        le=1_024,
    )
    root: str = setting(
        "where runs and prepared data go; relative to the shell's folder, ~ and {user} are filled in",
        "runs",
        resume="free",
        min_length=1,
    )
    python: str | None = setting("interpreter of the workers; default: the one that submits", None, resume="free")
    env: dict[str, str] = setting("environment variables of the workers", {}, resume="free")
    grace: Minutes = section(
        lambda: Minutes(minutes=5), "how long a stop request may take to save before workers are killed", resume="free"
    )
    memory_gib: float | None = setting(
        "host memory per node in GiB that plans may use; default: the node's own", None, resume="free", gt=0, le=MOST
    )
    node: Node | None = setting(
        "what plans count on: a kind of machine or its numbers; default: a processor, and this machine's memory",
        None,
        resume="free",
    )


class LocalProfile(Profile):
    """This machine."""

    scheduler: Literal["local"] = setting("who runs the job: this machine", "local", resume="free")


class SlurmProfile(Profile):
    """A Slurm cluster."""

    scheduler: Literal["slurm"] = setting("who runs the job: Slurm", resume="free")
    setup: list[Line] = setting("lines of bash that the job runs first: module load, source, ...", [], resume="free")
    partition: Word | None = setting("default: the cluster's", None, resume="free")
    account: Word | None = setting("who pays; default: the user's own", None, resume="free")
    qos: Word | None = setting("quality of service; default: the account's", None, resume="free")
    time: Time | None = setting(
        'time limit, "24:00:00" or "2-00:00:00"; the job saves before it is over and goes on in the next; '
        "default: the partition's",
        None,
        resume="free",
    )
    constraint: Line | None = setting("features that the nodes must have", None, resume="free")
    exclude: Line | None = setting("nodes that the job is not to get", None, resume="free")
    exclusive: bool = setting("share no node with other jobs", False, resume="free")
    gpus: int | None = setting("GPUs per node; default: none are asked for", None, resume="free", ge=1)
    cpus: int | None = setting(
        "processors per node; default: one per worker, or all of them where `exclusive`", None, resume="free", ge=1
    )
    sbatch: dict[Option, bool | int | str] = setting(
        "any other option of sbatch, by its long name: {mem: 64G, reservation: night}", {}, resume="free"
    )


class KubernetesProfile(Profile):
    """A Kubernetes cluster."""

    scheduler: Literal["kubernetes"] = setting("who runs the job: Kubernetes", resume="free")
    root: str = setting(
        "absolute path in the pods, in one of the volumes, where runs and prepared data go; {user} is filled in",
        "/runs/{user}",
        resume="free",
        min_length=1,
    )
    python: str = setting("interpreter in the image", "python", resume="free", min_length=1)
    kind: Literal["volcano", "job"] = setting(
        "Volcano's Job, whose pods start together or not at all; or Kubernetes' own, an Indexed Job",
        "volcano",
        resume="free",
    )
    context: str | None = setting(
        "context of the kubeconfig; default: its current one, or the cluster that dlrmx runs in", None, resume="free"
    )
    namespace: Label | None = setting("default: the context's", None, resume="free")
    queue: ObjectName | None = setting("Volcano's queue; default: the namespace's", None, resume="free")
    service_account: ObjectName | None = setting("of the pods; default: the namespace's", None, resume="free")
    priority_class: ObjectName | None = setting("of the pods; default: the cluster's", None, resume="free")
    image: Image = setting("container image with dlrmx in it", resume="free")
    image_pull_secrets: list[ObjectName] = setting("Secrets that the image is pulled with", [], resume="free")
    cpus: float | None = setting(
        "processors of a node's pod; default: as many as are free", None, resume="free", ge=0.001, le=MOST
    )
    gpus: int | None = setting("GPUs of a node's pod (nvidia.com/gpu); default: none", None, resume="free", ge=1)
    shared_memory_gib: float = setting("size of a pod's /dev/shm, which NCCL needs", 8.0, resume="free", gt=0, le=MOST)
    node_selector: dict[LabelKey, LabelValue] = setting("labels of the machines to use", {}, resume="free")
    tolerations: list[Toleration] = setting("taints of the machines to use", [], resume="free")
    volumes: dict[Label, Volume] = setting("folders that outlive the pods: runs, data", {}, resume="free")
    root_here: str | None = setting(
        "the root as this machine sees it; default: it does not, and runs are followed through the pods' log",
        None,
        resume="free",
        min_length=1,
    )
    secret_env: dict[str, SecretKey] = setting("environment variables from Secrets", {}, resume="free")
    port: int = setting("where the first pod listens for the others", 29_500, resume="free", ge=1_024, le=65_527)
    keep_finished: Minutes | None = setting(
        "how long a finished job stays to be looked at; default: until it is deleted", None, resume="free"
    )
    pod_patch: dict[str, Any] = setting(
        "laid over the pod by strategic merge: annotations, RDMA resources, affinity, ...", {}, resume="free"
    )


class PlannedProfile(Profile):
    """A kind of node to plan for. Nothing can be run on it."""

    scheduler: Literal["none"] = setting("who runs the job: nobody, it can only be planned", resume="free")


PROFILES: dict[str, type[Profile]] = {
    "local": LocalProfile,
    "slurm": SlurmProfile,
    "kubernetes": KubernetesProfile,
    "none": PlannedProfile,
}


def profile_class(raw: dict[str, Any]) -> type[Profile]:
    """The class of the scheduler that a raw profile names; of an unknown one, the local scheduler's refuses it."""
    scheduler = raw.get("scheduler", "local")
    return PROFILES.get(scheduler, LocalProfile) if isinstance(scheduler, str) else LocalProfile


def read_profile(raw: dict[str, Any]) -> Profile:
    """A resolved profile from its fields. Raises pydantic's ValidationError where they are none."""
    return profile_class(raw).model_validate(raw)
