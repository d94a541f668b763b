"""The schema as a tree: which keys, values and settings there are at a place."""

from collections.abc import Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dlrmx.recipe.schema import Settings
from dlrmx.recipe.yaml_file import join


def members(annotation: Any) -> list[type[Settings]]:
    """The settings models that an annotation names, unions and containers opened."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [model for argument in get_args(annotation) for model in members(argument)]


def tag(model: type[Settings]) -> str:
    """What tells a model from the others of its union: its `kind`, or the unit of a distance."""
    kind = model.model_fields.get("kind")
    return str(get_args(kind.annotation)[0]) if kind else next(iter(model.model_fields))


def choices(annotation: Any) -> list[Any]:
    """The values that a Literal allows, within unions and containers too."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for argument in get_args(annotation) for value in choices(argument)]


def annotation_at(root: type[Settings], location: Sequence[str | int]) -> Any:
    """The annotation at one of pydantic's locations (which name the tag of a union's member); None: no such place."""
    found: Any = root
    for step in location:
        found = _descend(found, step)
    return found


def field_at(root: type[Settings], location: Sequence[str | int]) -> FieldInfo | None:
    """The field at one of pydantic's locations, if a field is there."""
    models = members(annotation_at(root, location[:-1])) if location else []
    return models[0].model_fields.get(str(location[-1])) if len(models) == 1 else None


def _descend(annotation: Any, step: str | int) -> Any:
    given = [argument for argument in get_args(annotation) if argument is not NoneType]
    if get_origin(annotation) is UnionType and len(given) == 1:  # such a thing or nothing
        return _descend(given[0], step)
    if get_origin(annotation) in (dict, list):
        return get_args(annotation)[-1]
    models = members(annotation)
    if len(models) > 1:
        return next((model for model in models if tag(model) == step), None)
    field = models[0].model_fields.get(str(step)) if models else None
    return field.annotation if field else None


def leaves(value: Any, key: str = "", *, fixed_only: bool = False) -> Iterator[tuple[str, Any]]:
    """Each setting of a model as (dotted key, plain value); with `fixed_only`, those a resume may not change."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if not (fixed_only and is_free(field)):
                yield from leaves(getattr(value, name), join(key, name), fixed_only=fixed_only)
    elif isinstance(value, dict) and value:
        for name, entry in value.items():
            yield from leaves(entry, join(key, name), fixed_only=fixed_only)
    else:
        yield key, value


def is_free(field: FieldInfo) -> bool:
    """Whether a resume may change a field."""
    extra = field.json_schema_extra
    return isinstance(extra, dict) and extra.get("resume") == "free"
