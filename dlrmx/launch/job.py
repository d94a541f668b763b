"""What a job was asked to do: a frozen value that travels to the node process in one environment variable."""

import base64
import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any

from dlrmx.errors import InputError

JOB_VARIABLE = "DLRMX_JOB"
VERSION = 1
# Linux takes at most 128 KiB per variable (MAX_ARG_STRLEN); below this a person can read the job.
PLAIN_LIMIT = 96 * 1024
COMPRESSED = "zlib:"


@dataclass(frozen=True)
class JobSpec:
    """One submission of a run.

    dlrmx: version that submitted; the node refuses to be another. run, root: the run is <root>/<run>. recipe: resolved
    YAML. profile: the resolved profile's fields. plan_hash: the node recomputes the plan and refuses another; None
    where the data were not prepared when the job was made.
    resume: None for a first start, which also goes on with what an earlier start of the same job left; else
    {"from_step": S | None} (None: the newest good checkpoint) and, filled in by submit, {"after_attempt": N}: what
    came up to attempt N belongs to earlier submissions.
    evaluate: {"checkpoint": path, "split": name}: evaluate it, in a run of its own, and train nothing. Where the recipe
    names other files than it was trained on, "trained_on" is the folder of the prepared data that it was; the scores go
    to "predict", where that is given.
    """

    dlrmx: str
    run: str
    root: str
    recipe: str
    profile: dict[str, Any]
    plan_hash: str | None = None
    resume: dict[str, int | None] | None = None
    evaluate: dict[str, str] | None = None
    version: int = VERSION

    @property
    def from_step(self) -> int | None:
        return (self.resume or {}).get("from_step")

    @property
    def after_attempt(self) -> int:
        return (self.resume or {}).get("after_attempt") or 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def readable(self) -> str:
        """As `to_json`, on many lines, the recipe's among them."""
        return json.dumps({**asdict(self), "recipe": self.recipe.split("\n")}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "JobSpec":
        """Read `to_json`'s form, or `readable`'s. Raises InputError where it is neither, or of another version."""
        try:
            raw = json.loads(text)
            if raw["version"] != VERSION:
                raise InputError(f"the job has version {raw['version']}; this dlrmx reads {VERSION}")
            if isinstance(raw["recipe"], list):
                raw["recipe"] = "\n".join(raw["recipe"])
            return cls(**raw)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{JOB_VARIABLE} holds no job: {error}", hint="jobs are made by `dlrmx train`") from error

    def to_variable(self) -> str:
        """The value of DLRMX_JOB: the JSON itself, or compressed where it would not fit into a variable."""
        text = self.to_json()
        if len(text) <= PLAIN_LIMIT:
            return text
        return COMPRESSED + base64.b64encode(zlib.compress(text.encode(), 9)).decode()

    @classmethod
    def from_variable(cls, value: str) -> "JobSpec":
        """Read `to_variable`'s form. Raises InputError where it is none."""
        if not value.startswith(COMPRESSED):
            return cls.from_json(value)
        try:
            text = zlib.decompress(base64.b64decode(value.removeprefix(COMPRESSED), validate=True)).decode()
        except (ValueError, zlib.error) as error:
            raise InputError(f"{JOB_VARIABLE} holds no job: {error}", hint="jobs are made by `dlrmx train`") from error
        return cls.from_json(text)
