"""Strategic merge, as `kubectl patch` does it: mappings are merged, some lists by the key of their entries."""

from typing import Any

# Lists of a pod whose entries are told apart by a key (`x-kubernetes-patch-merge-key`); any other list is replaced.
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}


def strategic_merge(base: Any, patch: Any, field: str = "") -> Any:
    """`base` with `patch` laid over it; null takes a key out. `field` is the name of what is merged. Pure."""
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = {name: strategic_merge(base.get(name), value, name) for name, value in patch.items()}
        both = {**base, **merged}
        return {name: value for name, value in both.items() if value is not None}
    key = MERGE_KEYS.get(field)
    if key is None or not isinstance(base, list) or not isinstance(patch, list):
        return patch
    return _merge_entries(base, patch, key)


def _merge_entries(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    by_key = {entry[key]: entry for entry in base}
    for entry in patch:
        by_key[entry[key]] = strategic_merge(by_key.get(entry[key]), entry)
    return list(by_key.values())
