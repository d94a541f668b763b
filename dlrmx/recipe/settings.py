"""What all settings of a recipe share, and distances in steps, epochs and minutes.

A `fixed` setting is part of the recipe's fingerprint: a resume refuses a change and points to
`train.init_from`. A `free` one may change at a resume.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

Resume = Literal["fixed", "free"]

NAME = r"^[a-z][a-z0-9-]{0,30}$"
Name = Annotated[str, Field(pattern=r"^\w[\w-]{0,99}$")]


def setting(description: str, default: Any = ..., *, resume: Resume = "fixed", **limits: Any) -> Any:
    """A recipe field: its description, default and whether a resume may change it."""
    return Field(default, description=description, json_schema_extra={"resume": resume}, **limits)


def section(factory: Any, description: str, *, resume: Resume = "fixed") -> Any:
    """A recipe section with a default; its own fields say whether a resume may change them."""
    return Field(default_factory=factory, description=description, json_schema_extra={"resume": resume})


class Settings(BaseModel):
    """What all parts of a recipe share: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)


class Steps(Settings):
    """A distance in training steps."""

    steps: int = setting("global steps", resume="free", ge=1)


class Minutes(Settings):
    """A distance in minutes of wall time."""

    minutes: float = setting("minutes of wall time", resume="free", gt=0)


class Epochs(Settings):
    """A distance in passes over the training split."""

    epochs: int = setting("passes over the training split", resume="free", ge=1)


def _unit(distance: Any) -> str | None:
    """The one key of a distance, which says its unit."""
    keys = list(type(distance).model_fields) if isinstance(distance, Settings) else distance
    return str(next(iter(keys))) if isinstance(keys, list | dict) and len(keys) == 1 else None


_Steps = Annotated[Steps, Tag("steps")]
_Minutes = Annotated[Minutes, Tag("minutes")]
_Epochs = Annotated[Epochs, Tag("epochs")]
EpochsOrSteps = Annotated[_Epochs | _Steps, Discriminator(_unit)]
StepsOrMinutes = Annotated[_Steps | _Minutes, Discriminator(_unit)]
Width = Annotated[int, Field(ge=1)]
