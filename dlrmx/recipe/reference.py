"""The recipe reference, generated from the schema: `python -m dlrmx.recipe.reference > docs/recipe.md`."""

import inspect
import json
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dlrmx.recipe.profiles import PROFILES
from dlrmx.recipe.schema import Feature, Recipe, Settings, Table
from dlrmx.recipe.tree import choices, is_free, members, tag

_INTRODUCTION = """\
# Recipe reference

Generated from the schema by `python -m dlrmx.recipe.reference`; do not edit.

A recipe is one YAML file: what to train. A cluster profile says where. YAML is read with 1.2 scalars: `off`, `no` and
`24:00:00` are text, `1e-3` is a number, `200_000` is a whole number. An unknown key, a key given twice and a setting
that nothing would read are errors. Paths in a recipe begin at its folder, paths in `-s` at the shell's. A feature takes
what it does not set from `defaults.feature`, a table from `defaults.table`. `-s a.b.c=value` sets one key, the value
read as YAML.

**Resume**: a *fixed* setting is part of the recipe's fingerprint, and a resume refuses another value (`train.init_from`
starts a new run from the weights instead); a *free* one may change at a resume.
"""


_FILLED_IN = {
    (Recipe, "name"): "the file's stem",
    (Feature, "column"): "the feature's name",
    (Feature, "table"): "the feature's name",
    (Table, "dim"): "required, here or in `defaults`",
    (Table, "rows"): "required, here or in `defaults`",
}


def recipe_reference() -> str:
    """Markdown: a table of settings for each section of the recipe, then for the profile."""
    profiles = [
        text
        for scheduler, model in PROFILES.items()
        for text in _sections(f"cluster profile (scheduler: {scheduler})", model, "")
    ]
    sections = [*_sections("recipe", Recipe, ""), *profiles]
    return "\n".join([_INTRODUCTION, *dict.fromkeys(sections)])  # data.split is described once for both kinds of data


def json_schema() -> dict[str, Any]:
    """The recipe's JSON Schema, for editors, of a file as it is written.

    That is before names and `defaults` are filled in and tables and features are generated.
    """
    schema = Recipe.model_json_schema()
    for name in ("name", "features", "tables"):
        schema["required"].remove(name)
    for name in ("Feature", "Table"):
        schema["$defs"][name].pop("required")
    for group in ("features", "tables"):
        entries = schema["properties"][group]
        names = entries.pop("patternProperties")
        entries["patternProperties"] = {
            pattern: {"anyOf": [entry, {"type": "null"}]} for pattern, entry in names.items()
        }
    return schema


def _sections(title: str, model: type[Settings], prefix: str) -> Iterator[str]:
    head = "| key | value | default | resume | meaning |\n|---|---|---|---|---|"
    rows = [_row(name, field, _FILLED_IN.get((model, name))) for name, field in model.model_fields.items()]
    yield "\n".join([f"## {title}\n", f"{inspect.cleandoc(model.__doc__ or '')}\n", head, *rows, ""])
    for name, field in model.model_fields.items():
        models = members(field.annotation)
        for member in models:
            if "kind" in member.model_fields or len(models) == 1 and not _is_distance(member):
                key = f"{prefix}{name}{'.NAME' if get_origin(field.annotation) is dict else ''}"
                kind = f" (kind: {tag(member)})" if "kind" in member.model_fields and len(models) > 1 else ""
                yield from _sections(f"{key}{kind}", member, f"{key}.")


def _row(name: str, field: FieldInfo, filled_in: str | None) -> str:
    default = filled_in or ("required" if field.is_required() else _default(field))
    resume = "free" if is_free(field) else "fixed"
    cells = (f"`{name}`", _values(field), default, resume, field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _is_distance(model: type[Settings]) -> bool:
    return list(model.model_fields) in (["steps"], ["minutes"], ["epochs"])


def _values(field: FieldInfo) -> str:
    """What may be written, with its limits."""
    models = members(field.annotation)
    is_mapping = get_origin(field.annotation) is dict
    if models and all(_is_distance(model) for model in models):
        return " or ".join(f"`{{{tag(model)}: N}}`" for model in models)
    if models:
        kinds = f"`kind`: {', '.join(tag(model) for model in models)}" if len(models) > 1 else "see below"
        return f"a mapping of names, {kinds}" if is_mapping else kinds
    words = ", ".join(f"`{value}`" for value in choices(field.annotation))
    if words:
        return f"list of {words}" if get_origin(field.annotation) is list else words
    return _type(field.annotation) + _limits(field)


def _type(annotation: Any) -> str:
    plain = {int: "whole number", float: "number", str: "text", bool: "`true`, `false`", Any: "anything"}
    if annotation in plain:
        return plain[annotation]
    arguments = [argument for argument in get_args(annotation) if argument is not NoneType]
    if get_origin(annotation) is dict:
        return "mapping"
    if get_origin(annotation) is list:
        return f"list of {_type(arguments[0])}s".replace("texts", "text")
    if arguments and hasattr(annotation, "__metadata__"):
        return _type(arguments[0])
    return " or ".join(_type(argument) for argument in arguments)


def _limits(field: FieldInfo) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<", "multiple_of": "a multiple of"}
    found = [
        f"{sign} {getattr(limit, name)}"
        for limit in field.metadata
        for name, sign in signs.items()
        if getattr(limit, name, None) is not None
    ]
    return f", {', '.join(found)}" if found else ""


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    assert value is not PydanticUndefined
    if isinstance(value, Settings):
        changed = {name: getattr(value, name) for name in value.model_fields_set}
        return ", ".join(f"`{name}: {entry}`" for name, entry in changed.items()) or "see below"
    if value is None or value in ({}, []):
        return "none"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    print(recipe_reference(), end="")
