"""What a Kubernetes profile says of its pods: volumes, tolerations, secrets, and the patch for all the rest."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, model_validator

from dlrmx.recipe.schema import Settings, setting


def _matches(pattern: str, words: str) -> AfterValidator:
    """A check that a text is of the pattern; `words` say what that is."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f'must be {words}, not "{text}"')
        return text

    return AfterValidator(check)


# RFC 1123 labels and names, as Kubernetes asks for them.
Label = Annotated[
    str, _matches(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "at most 63 lower-case letters, digits and - inside")
]
ObjectName = Annotated[
    str, _matches(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "lower-case letters, digits, and - or . inside")
]
LabelKey = Annotated[
    str,
    _matches(
        r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        "a label's key: letters, digits, -, _ and . inside, at most 63; a DNS name and / may come first",
    ),
]
LabelValue = Annotated[
    str,
    _matches(
        r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?",
        "a label's value: letters, digits, -, _ and . inside, at most 63",
    ),
]
Folder = Annotated[str, _matches(r"/[^:]*", "an absolute path without a colon")]
Export = Annotated[str, _matches(r"[^:/\s]+:/.*", "SERVER:/PATH")]
Image = Annotated[str, _matches(r"[^\s]+", "an image's name without blanks")]
SecretEntry = Annotated[str, _matches(r"[A-Za-z0-9._-]+", "letters, digits, -, _ and .")]
CONTAINER = "node"

# Pod fields that are dlrmx's, and what says the same in a profile; "" where nothing may.
OWNED = {
    "restartPolicy": "",
    "terminationGracePeriodSeconds": "grace",
    "hostname": "",
    "subdomain": "",
    "nodeSelector": "node_selector",
    "tolerations": "tolerations",
    "serviceAccountName": "service_account",
    "priorityClassName": "priority_class",
    "imagePullSecrets": "image_pull_secrets",
}
OWNED_OF_CONTAINER = {"image": "image", "command": "python", "args": ""}
OWNED_RESOURCES = {"cpu": "cpus", "memory": "memory_gib", "nvidia.com/gpu": "gpus"}


class Volume(Settings):
    """A folder that outlives its pods. One of `claim`, `host_path` and `nfs` says where it is."""

    mount: Folder = setting("absolute path in the pods", resume="free")
    claim: ObjectName | None = setting("a PersistentVolumeClaim", None, resume="free")
    host_path: Folder | None = setting("a folder of every machine, mounted there already", None, resume="free")
    nfs: Export | None = setting("SERVER:/PATH of an NFS export", None, resume="free")
    sub_path: str | None = setting("a folder inside of it; default: all of it", None, resume="free")
    read_only: bool = setting("mount it for reading only", False, resume="free")

    @model_validator(mode="after")
    def _has_one_source(self) -> "Volume":
        given = [name for name in ("claim", "host_path", "nfs") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs one of claim, host_path and nfs, and has {' and '.join(given) or 'none'}")
        return self


class Toleration(Settings):
    """A taint that the pods put up with."""

    key: str | None = setting("of the taint; default: every taint", None, resume="free")
    operator: Literal["Exists", "Equal"] = setting("how the taint is compared", "Exists", resume="free")
    value: str | None = setting("of the taint, with Equal", None, resume="free")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = setting(
        "of the taint; default: all", None, resume="free"
    )

    @model_validator(mode="after")
    def _value_is_compared(self) -> "Toleration":
        if (self.operator == "Equal") != (self.value is not None):
            raise ValueError("a value goes with `operator: Equal`, and that with a value")
        return self


class SecretKey(Settings):
    """One entry of a Secret."""

    secret: ObjectName = setting("name of the Secret", resume="free")
    key: SecretEntry = setting("entry in it", resume="free")


def patch_problems(patch: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(dotted key inside the patch, what is wrong, hint) of what a pod_patch may not say."""
    for key in patch:
        if key not in ("metadata", "spec"):
            yield key, "a pod has metadata and spec only", "the patch is laid over the job's pod template"
    metadata, spec = _mapping(patch, "metadata"), _mapping(patch, "spec")
    yield from _not_mappings(patch)
    for key in metadata:
        if key not in ("labels", "annotations"):
            yield f"metadata.{key}", "is set by dlrmx", "labels and annotations can be patched"
    for key in ("labels", "annotations"):
        for name in _mapping(metadata, key):
            if name.startswith(("dlrmx/", "app.kubernetes.io/")):
                yield f"metadata.{key}.{name}", "is set by dlrmx", "take it out"
    yield from _owned("spec", spec, OWNED)
    yield from _container_problems(spec)


def _container_problems(spec: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    containers = spec.get("containers", [])
    if not isinstance(containers, list) or any(
        not isinstance(entry, dict) or "name" not in entry for entry in containers
    ):
        yield "spec.containers", "must be a list of containers with names", f"dlrmx's is named {CONTAINER}"
        return
    for entry in containers:
        if entry["name"] != CONTAINER:
            continue
        at = f"spec.containers.{CONTAINER}"
        yield from _owned(at, entry, OWNED_OF_CONTAINER)
        for part in ("requests", "limits"):
            resources = _mapping(_mapping(entry, "resources"), part)
            yield from _owned(f"{at}.resources.{part}", resources, OWNED_RESOURCES)
        if "env" in entry:
            yield f"{at}.env", "is set by dlrmx", "use env and secret_env of the profile"


def _owned(at: str, values: dict[str, Any], owned: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    for name in values:
        if name in owned:
            instead = owned[name]
            yield f"{at}.{name}", "is set by dlrmx", f"use {instead} of the profile" if instead else "take it out"


def _not_mappings(patch: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for key in ("metadata", "spec"):
        if key in patch and not isinstance(patch[key], dict):
            yield key, "must be a mapping", ""


def _mapping(values: dict[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key)
    return found if isinstance(found, dict) else {}
