"""Reads YAML with 1.2 scalars and keeps the line of each key.

`off`, `no` and `24:00:00` are text, `1e-3` is a number, `200_000` is a whole number. What a recipe does not need is
refused with its line: keys given twice, aliases (a few lines of them expand to gigabytes), tags, a second document,
numbers that are not finite or exceed 64 bits. Keys are text, whatever they look like.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from dlrmx.errors import InputError, Problem

LOADER = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
MAX_BYTES = 1 << 20
MAX_DEPTH = 32

_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True)
class Document:
    """A parsed file: its value, the place ("file:line") of each dotted key, what is wrong so far, and its name."""

    value: Any
    places: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    name: str = ""


def join(key: str, child: str | int) -> str:
    """The dotted key of a child: model.bottom + 0 -> model.bottom[0]."""
    if isinstance(child, int):
        return f"{key}[{child}]"
    return f"{key}.{child}" if key else child


def place_of(key: str, places: dict[str, str]) -> str:
    """The place of a dotted key, or of the nearest one around it; "" where there is none."""
    while key and key not in places:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return places.get(key, "")


def read_text(path: Path) -> str:
    """The text of a YAML file. InputError when it cannot be read, is none, or is far larger than any recipe."""
    if path.is_dir():
        raise InputError([Problem("is a folder, not a YAML file", where=str(path))])
    if not path.is_file():
        what = "is a device or pipe, not a YAML file" if path.exists() else "no such file"
        raise InputError([Problem(what, where=str(path))])
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError([Problem(f"cannot be read: {error.strerror}", where=str(path))]) from error
    if len(content) > MAX_BYTES:
        raise InputError([Problem("larger than 1 MiB, which no recipe is", where=str(path), hint="is this data?")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        problem = Problem("not UTF-8 text", where=f"{path}:{line}", hint="save the file as UTF-8")
        raise InputError([problem]) from error


def read_yaml(path: Path) -> Document:
    """Parse a file whose top level is a mapping. InputError when it cannot be read or is not YAML."""
    document = parse_yaml(read_text(path), str(path))
    if document.value is None:
        hint = "`dlrmx recipes copy quickstart` writes a recipe to start from"
        raise InputError([Problem("the file is empty", where=str(path), hint=hint)])
    if not isinstance(document.value, dict):
        raise InputError([Problem("holds no `key: value` lines at its top level", where=f"{path}:1")])
    return document


def parse_yaml(text: str, name: str) -> Document:
    """Parse YAML text that came from `name`. InputError where it is not YAML or holds what we refuse."""
    places: dict[str, str] = {}
    problems: list[Problem] = []
    try:
        text.encode()
        events = yaml.parse(text, Loader=LOADER)
        value = _Parser(events, name, places, problems).document()
    except UnicodeEncodeError as error:
        raise InputError([Problem("not UTF-8 text", where=name)]) from error
    except yaml.YAMLError as error:
        raise InputError([_syntax_problem(error, text, name)]) from error
    return Document(value, places, problems, name)


def scalar(text: str) -> Any:
    """A plain YAML 1.2 scalar: null, bool, int, float or text. ValueError names a number that we refuse."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        number = (
            int(text.replace("_", ""), 8 if "0o" in text else 16 if "0x" in text else 10) if len(text) < 40 else None
        )
        if number is None or abs(number) >= 2**63:
            raise ValueError("the number does not fit in 64 bits")
        return number
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    if _FLOAT.fullmatch(text):
        real = float(text.replace("_", ""))
        if real in (float("inf"), float("-inf")):
            raise ValueError(f"{text[:40]} is too large for a number")
        return real
    return text


class _Parser:
    """Builds the value from the parser's events: they carry the lines, and nothing is expanded."""

    def __init__(
        self, events: Iterator[yaml.Event], name: str, places: dict[str, str], problems: list[Problem]
    ) -> None:
        self.events = events
        self.name = name
        self.places = places
        self.problems = problems

    def document(self) -> Any:
        value = None
        num_documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                num_documents += 1
                if num_documents > 1:
                    self.refuse(event, "a second document begins here (---)", "one file holds one recipe")
            elif isinstance(event, yaml.NodeEvent):
                value = self.node(event, "", 0)
        return value

    def node(self, event: yaml.Event, key: str, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            self.refuse(
                event, f"the alias *{event.anchor} is not supported", "`defaults` shares settings between features"
            )
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            self.refuse(event, f"the tag {tag} is not supported", "write the plain value")
        if depth > MAX_DEPTH:
            self.refuse(event, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(key, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(key, depth)
        assert isinstance(event, yaml.ScalarEvent)
        return self.scalar(event, key)

    def mapping(self, key: str, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self.refuse(event, "a key must be plain text", "quote a value that begins with { [ or *")
            name, line = event.value, _line(event)
            child = join(key, name)
            if name in first_lines:
                what = "given twice" + (f": here and in line {first_lines[name]}" if first_lines[name] != line else "")
                self.problems.append(Problem(what, where=self.where(event), key=child, hint="keep one of them"))
            first_lines.setdefault(name, line)
            self.places[child] = self.where(event)
            result[name] = self.node(next(self.events), child, depth + 1)
        return result

    def sequence(self, key: str, depth: int) -> list[Any]:
        result: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            child = join(key, len(result))
            self.places[child] = self.where(event)
            result.append(self.node(event, child, depth + 1))
        return result

    def scalar(self, event: yaml.ScalarEvent, key: str) -> Any:
        if "\0" in event.value:
            self.problems.append(Problem("holds a NUL character", where=self.where(event), key=key))
            return None
        if not event.implicit[0]:
            return event.value
        try:
            return scalar(event.value)
        except ValueError as error:
            self.problems.append(Problem(str(error), where=self.where(event), key=key))
            return None

    def where(self, event: yaml.Event) -> str:
        return f"{self.name}:{_line(event)}"

    def refuse(self, event: yaml.Event, what: str, hint: str = "") -> NoReturn:
        raise InputError([Problem(what, where=self.where(event), hint=hint)])


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return int(event.start_mark.line) + 1


def _syntax_problem(error: yaml.YAMLError, text: str, name: str) -> Problem:
    """The parser's complaint, with its line and, for the two commonest slips, what to do."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        position = getattr(error, "position", 0)
        line = text.encode()[:position].count(b"\n") + 1
        return Problem(f"not YAML: {getattr(error, 'reason', error)}", where=f"{name}:{line}")
    lines = text.split("\n")
    shown = lines[mark.line] if mark.line < len(lines) else ""
    what = f"not YAML: {getattr(error, 'problem', None) or error}"
    if context := getattr(error, "context", None):
        what += f" ({context})"
    hint = ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())]:
        hint = "the line begins with a tab: YAML is indented with spaces"
    elif shown.strip():
        hint = f"the line is: {shown.strip()[:80]}"
    return Problem(what, where=f"{name}:{mark.line + 1}", hint=hint)
