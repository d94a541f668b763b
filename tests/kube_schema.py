"""Checks an object against a CRD's structural schema, as a Kubernetes API server does."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def read_crd(path: Path) -> Schema:
    """The schema of a CRD's first version."""
    schema: Schema = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {**schema, "properties": {**schema["properties"], "metadata": {"type": "object", KEEP: True}}}


KEEP = "x-kubernetes-preserve-unknown-fields"
UNKNOWN = "strict decoding error: unknown field"


def faults(schema: Schema, value: Any, at: str = "") -> Iterator[str]:
    """What is wrong with `value`, unknown fields included (fieldValidation=Strict)."""
    if value is None:
        return  # counts as absent
    yield from _type_faults(schema, value, at)
    if isinstance(value, dict):
        yield from _object_faults(schema, value, at)
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from faults(schema.get("items", {KEEP: True}), entry, f"{at}[{number}]")
        yield from _duplicates(schema, value, at)


def _type_faults(schema: Schema, value: Any, at: str) -> Iterator[str]:
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)):
            yield f"{at}: must be an integer or a string"
        return
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or kind != "boolean" and isinstance(value, bool)):
        yield f"{at}: must be of type {kind}: {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{at}: {value!r} is not of {schema['pattern']}"
    if kind in ("integer", "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: {value} is out of range"
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        yield f"{at}: {value} is no int32"


def _object_faults(schema: Schema, value: dict[str, Any], at: str) -> Iterator[str]:
    for name in schema.get("required", []):
        if value.get(name) is None:
            yield f"{at}.{name}: Required value"
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, entry in value.items():
        if name in known:
            yield from faults(known[name], entry, f"{at}.{name}")
        elif isinstance(others, dict):
            yield from faults(others, entry, f"{at}.{name}")
        elif known and not others and not schema.get(KEEP):
            yield f'{at}: {UNKNOWN} "{name}"'


def _duplicates(schema: Schema, value: list[Any], at: str) -> Iterator[str]:
    """Lists that are maps by some keys of their entries."""
    if schema.get("x-kubernetes-list-type") != "map":
        return
    seen = set()
    for number, entry in enumerate(value):
        properties = schema["items"]["properties"]
        key = tuple(entry.get(name, properties[name].get("default")) for name in schema["x-kubernetes-list-map-keys"])
        if key in seen:
            yield f"{at}[{number}]: Duplicate value: {key}"
        seen.add(key)
