"""Rules of a Kubernetes profile that span several settings, and those that tie it to a recipe."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from dlrmx.errors import Problem
from dlrmx.recipe.pods import Volume, patch_problems
from dlrmx.recipe.profiles import KubernetesProfile, Profile
from dlrmx.recipe.schema import Recipe

SHM = "/dev/shm"


def kubernetes_problems(profile: KubernetesProfile) -> Iterator[Problem]:
    """What is wrong with a profile by itself, keyed inside of it."""
    if not profile.root.startswith("/"):
        hint = "a folder in the pods, inside of a volume: root: /runs"
        yield Problem(f"must be an absolute path, not {profile.root}", key="root", hint=hint)
    if profile.kind == "job" and profile.queue is not None:
        yield Problem("has no effect: queues are Volcano's", key="queue", hint="take it out, or use `kind: volcano`")
    mounts: dict[str, str] = {SHM: "shared memory"}
    for name, volume in profile.volumes.items():
        mount = str(PurePosixPath(volume.mount))
        if mount in mounts:
            yield Problem(f"{mount} is {mounts[mount]} already", key=f"volumes.{name}.mount")
        mounts[mount] = f"volume {name}"
    for name in profile.secret_env:
        if name in profile.env:
            yield Problem("is in env, too", key=f"secret_env.{name}", hint="take one of them out")
    if profile.workers_per_node is not None and profile.gpus not in (None, profile.workers_per_node):
        what = f"is {profile.workers_per_node}, but a pod has {profile.gpus} GPUs"
        yield Problem(what, key="workers_per_node", hint="each rank has one GPU: take workers_per_node out")
    for key, what, hint in patch_problems(profile.pod_patch):
        yield Problem(what, key=f"pod_patch.{key}", hint=hint)


def volume_of_root(profile: KubernetesProfile) -> Volume | None:
    """The volume that holds the run directories; None: they go when the pods go."""
    root = PurePosixPath(profile.root)
    holding = [volume for volume in profile.volumes.values() if root.is_relative_to(volume.mount)]
    return max(holding, key=lambda volume: len(PurePosixPath(volume.mount).parts), default=None)


def checkpoints_stay(recipe: Recipe, profile: Profile) -> Iterator[Problem]:
    """Checkpoints in a pod's own disk are lost with the pod."""
    if not isinstance(profile, KubernetesProfile) or not recipe.checkpoint.save:
        return
    volume = volume_of_root(profile)
    hint = "add a volume around root, or give up checkpoints: -s checkpoint='{save: false}'"
    if volume is None:
        what = f"no volume holds {profile.root}: checkpoints would be lost with their pods"
        yield Problem(what, key="cluster.volumes", hint=hint)
    elif volume.read_only:
        yield Problem(
            f"the volume at {volume.mount} is read_only, so nothing can be saved", key="cluster.root", hint=hint
        )
