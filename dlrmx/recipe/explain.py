"""Says in plain words what pydantic found: dotted key, what is wrong, a way out."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dlrmx.errors import Problem
from dlrmx.recipe.names import near_miss
from dlrmx.recipe.schema import Settings
from dlrmx.recipe.tree import annotation_at, choices, field_at, members, tag
from dlrmx.recipe.yaml_file import join

Location = tuple[str | int, ...]

_IGNORED = "fbgemm on CPU accepts it and silently ignores it, so it would not do what the recipe says"
_CPU_OPTIMIZERS = "fbgemm on CPU has sgd, adagrad and rowwise_adagrad only"
REFUSED = {
    "weight_decay": f"not supported for embedding tables: {_IGNORED}",
    "max_norm": f"not supported for embedding tables: {_IGNORED}",
}

_LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def explain(error: ValidationError, raw: Any, root: type[Settings], prefix: str = "") -> list[Problem]:
    """One problem per finding, keyed from `prefix`; what all features inherit from `defaults` is said once."""
    found = [_problem(details, raw, root, prefix) for details in error.errors(include_url=False)]
    return list(dict.fromkeys(found))


def show(value: Any) -> str:
    """A value as a reader of the recipe knows it, on one short line."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping" if value else "{}"
    if isinstance(value, list):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _problem(details: ErrorDetails, raw: Any, root: type[Settings], prefix: str) -> Problem:
    location = details["loc"]
    path = _path(location, raw, missing=details["type"] == "missing")
    what, hint, child = _words(details, root, location)
    key = prefix
    for step in (*path, *child):
        key = join(key, step)
    return Problem(what, key=key, hint=hint)


def _words(details: ErrorDetails, root: type[Settings], location: Location) -> tuple[str, str, tuple[str, ...]]:
    """What is wrong, a way out, and the key inside the location that it is about, if that is narrower."""
    kind, value, limits = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        field = field_at(root, location)
        return "is missing", field.description or "" if field else "", ()
    if kind == "extra_forbidden":
        return (*_unknown_key(root, location), ())
    if kind == "literal_error":
        return (*_unknown_value(root, location, value), ())
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_tag(root, location, value)
    if kind in _LIMITS:
        words, limit = _LIMITS[kind]
        return f"must be {words} {limits[limit]:.15g}, not {show(value)}", "", ()
    if kind == "multiple_of":
        step = limits["multiple_of"]
        return f"must be a multiple of {step}, not {value}", f"the next ones are {_around(value, int(step))}", ()
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {show(value)}", _type_hint(kind, value) or _keys_hint(root, details), ()
    if kind in ("too_short", "string_too_short"):
        return "must not be empty", "", ()
    if kind == "string_pattern_mismatch" and location[-1] == "[key]":
        return (
            f"{show(value)} must be letters, digits, _ and -, at most 100",
            "a feature's `column` may be any text",
            (),
        )
    if kind == "string_pattern_mismatch":
        what = f"must be lower-case letters, digits and -, at most 31, the first a letter; not {show(value)}"
        return what, "it becomes the name of jobs and folders", ()
    return details["msg"].removeprefix("Value error, "), "", ()


def _unknown_key(root: type[Settings], location: Location) -> tuple[str, str]:
    name = str(location[-1])
    if name in REFUSED and (location[0] == "tables" or location[:2] == ("optimizer", "sparse")):
        return REFUSED[name], "take it out; the dense optimizer has weight_decay (adamw)"
    models = members(annotation_at(root, location[:-1]))
    return "unknown key", near_miss(name, models[0].model_fields) if models else ""


def _unknown_value(root: type[Settings], location: Location, value: Any) -> tuple[str, str]:
    known = choices(annotation_at(root, location))
    if location == ("dlrmx",):
        return f"must be {known[0]}, the recipe schema that this dlrmx reads; not {show(value)}", ""
    if location == ("optimizer", "sparse", "kind"):
        return f"{show(value)} is not supported: {_CPU_OPTIMIZERS}", near_miss(value, known)
    return f"{show(value)} is not one of its values", near_miss(value, known)


def _unknown_tag(root: type[Settings], location: Location, value: Any) -> tuple[str, str, tuple[str, ...]]:
    """A union's member cannot be told: by its `kind`, or by the one key of a distance."""
    models = members(annotation_at(root, location))
    tags = [tag(model) for model in models]
    if "kind" not in models[0].model_fields:
        forms = " or ".join(f"{{{unit}: N}}" for unit in tags)
        keys = list(value) if isinstance(value, dict) else []
        given = ", ".join(keys) or show(value)
        return f"must be {forms}, not {given}", near_miss(keys[0], tags) if len(keys) == 1 else "", ()
    if "kind" not in value:
        return "is missing", f"one of {', '.join(tags)}", ("kind",)
    return f"{show(value['kind'])} is not one of its values", near_miss(value["kind"], tags), ("kind",)


def _type_hint(kind: str, value: Any) -> str:
    if value is None:
        return (
            "leave the key out for its default"
            if kind not in ("dict_type", "model_type", "model_attributes_type")
            else ""
        )
    if kind == "string_type" and not isinstance(value, list | dict):
        return f'quote it: "{show(value)}"'
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"write {int(value):_}"
    if kind == "bool_type" and str(value).lower() in ("yes", "no", "on", "off", "0", "1"):
        return "YAML 1.2 knows true and false only"
    if kind == "list_type" and not isinstance(value, dict):
        return f"put it in brackets: [{value}]"
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return "take the quotes away" if value.replace(".", "", 1).isdigit() else ""
    return ""


def _keys_hint(root: type[Settings], details: ErrorDetails) -> str:
    """Where a plain value stands for a mapping that has to have one key: the mapping."""
    value, models = details["input"], members(annotation_at(root, details["loc"]))
    if len(models) != 1 or not isinstance(value, str | int | float):
        return ""
    required = [name for name, field in models[0].model_fields.items() if field.is_required()]
    return f"write {{{required[0]}: {value}}}" if len(required) == 1 else ""


def _around(value: int, step: int) -> str:
    below = value // step * step
    return f"{below} and {below + step}" if below else str(step)


def _path(location: Location, raw: Any, *, missing: bool) -> Location:
    """The file's keys along one of pydantic's locations: without tags, in `defaults` where it came from there."""
    inherited = _inherited(location, raw)
    if inherited is not None:
        location = inherited
    path: list[str | int] = []
    node = raw
    for position, step in enumerate(location):
        known = step in node if isinstance(node, dict) else isinstance(node, list) and isinstance(step, int)
        if known:
            path.append(step)
            node = node[step]
        elif missing and position == len(location) - 1:
            path.append(step)
    return tuple(path)


def _inherited(location: Location, raw: Any) -> Location | None:
    """Where in `defaults` a feature's or table's setting came from; None when it is its own."""
    if len(location) < 3 or location[0] not in ("features", "tables") or not isinstance(raw, dict):
        return None
    group, name, setting = location[:3]
    singular = str(group).removesuffix("s")
    shared = raw.get("defaults", {}).get(singular) if isinstance(raw.get("defaults"), dict) else None
    entry = raw[group][name] if isinstance(raw.get(group), dict) else None
    own = isinstance(entry, dict) and setting in entry
    if own or not isinstance(shared, dict) or setting not in shared:
        return None
    return ("defaults", singular, *location[2:])
