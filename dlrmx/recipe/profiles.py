"""The settings of a cluster profile, one class per scheduler: a profile has its own scheduler's keys and no others."""

from typing import Any, Literal

from dlrmx.recipe.schema import Minutes, Settings, section, setting

CPU_WORKERS = 2


class Profile(Settings):
    """What profiles of all schedulers share. Nothing in a profile changes what is trained."""

    scheduler: str
    nodes: int = setting("machines", 1, resume="free", ge=1)
    workers_per_node: int | None = setting(
        f"processes per node, each one rank; default: the machine's GPUs, else {CPU_WORKERS}",
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
        "memory per node in GiB that plans may use; default: this machine's", None, resume="free", gt=0
    )


class LocalProfile(Profile):
    """This machine."""

    scheduler: Literal["local"] = setting("who runs the job: this machine", "local", resume="free")


class SlurmProfile(Profile):
    """A Slurm cluster."""

    scheduler: Literal["slurm"] = setting("who runs the job: Slurm", resume="free")


class KubernetesProfile(Profile):
    """A Kubernetes cluster."""

    scheduler: Literal["kubernetes"] = setting("who runs the job: Kubernetes", resume="free")


PROFILES: dict[str, type[Profile]] = {
    "local": LocalProfile,
    "slurm": SlurmProfile,
    "kubernetes": KubernetesProfile,
}


def profile_class(raw: dict[str, Any]) -> type[Profile]:
    """The class of the scheduler that a raw profile names; of an unknown one, the local scheduler's refuses it."""
    scheduler = raw.get("scheduler", "local")
    return PROFILES.get(scheduler, LocalProfile) if isinstance(scheduler, str) else LocalProfile


def read_profile(raw: dict[str, Any]) -> Profile:
    """A resolved profile from its fields. Raises pydantic's ValidationError where they are none."""
    return profile_class(raw).model_validate(raw)
