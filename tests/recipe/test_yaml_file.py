"""YAML 1.2 scalars, lines, and every kind of file that is no recipe."""

import os
from pathlib import Path
from typing import Any

import pytest

from dlrmx.errors import InputError
from dlrmx.recipe.yaml_file import parse_yaml, place_of, read_yaml, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[
            (text, text)
            for text in ("off", "no", "yes", "on", "y", "24:00:00", "2024-01-01", "1:30", "<<", "=", "1__0")
        ],
        *[(text, text) for text in ("_1", "1_", "0b1", "1e", "e5", ".", "-", "+", "0o8", "0xg", "1.2.3", "-0x1")],
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-1.5e+2", -150.0),
        ("200_000", 200000),
        ("1_000.5", 1000.5),
        ("007", 7),
        ("-12", -12),
        ("0o17", 15),
        ("0x1F", 31),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_scalar(text: str, value: Any) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


@pytest.mark.parametrize(
    "text", [".inf", "-.Inf", ".nan", "1e999", "-1e999", "9223372036854775808", "9" * 5000, "0x" + "f" * 30]
)
def test_numbers_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        scalar(text)
    assert [problem.where for problem in parse_yaml(f"\na: {text}", "r.yaml").problems] == ["r.yaml:2"]


def test_quoted_text_and_keys_stay_text() -> None:
    assert parse_yaml("""{26: "1e-3", off: '5', ~: !  x}""", "r").value == {"26": "1e-3", "off": "5", "~": "x"}


def test_each_key_has_its_line() -> None:
    document = parse_yaml("a:\n  b: 1\n  c:\n    - x\n    - d: 2\ne: {f: 3}\n", "r.yaml")
    lines = {key: int(place.removeprefix("r.yaml:")) for key, place in document.places.items()}
    assert lines == {"a": 1, "a.b": 2, "a.c": 3, "a.c[0]": 4, "a.c[1]": 5, "a.c[1].d": 5, "e": 6, "e.f": 6}


def test_the_place_of_an_absent_key_is_that_of_the_nearest_around_it() -> None:
    places = {"a": "r:1", "a.b": "r:2"}
    assert place_of("a.b[0].c", places) == "r:2"
    assert place_of("a.x.y", places) == "r:1"
    assert place_of("z.y", places) == ""


def test_a_key_given_twice_names_both_lines_and_all_of_them() -> None:
    problems = parse_yaml("a: 1\nb: {c: 1, c: 2}\na: 3\n", "r.yaml").problems
    assert [(problem.where, problem.key) for problem in problems] == [("r.yaml:2", "b.c"), ("r.yaml:3", "a")]
    assert problems[1].what == "given twice: here and in line 1"


BOMB = "a: &a [x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\n\tb: 2\n", 2, "indented with spaces"),
        ("a:\n  b: 1\n c: 2\n", 3, "not YAML"),
        ("a: [1, 2\n", 2, "not YAML"),
        ("a: 'x\n", 2, "not YAML"),
        ("a: b: c\n", 1, "not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: &x 1\nb: *x\n", 2, "alias"),
        ("a: &x\n  b: *x\n", 2, "alias"),
        (BOMB, 2, "alias"),
        ("a: !!python/object:os.system x\n", 1, "tag"),
        ("{a: 1}: 2\n", 1, "key"),
        ("a: " + "[" * 40 + "]" * 40, 1, "deeper than 32"),
        ("a: " + "[" * 100_000, 1, ""),
        ("a: \x07\n", 1, "not YAML"),
        ("a: @x\n", 1, "not YAML"),
    ],
)
def test_what_is_refused_at_once(text: str, line: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "r.yaml")
    assert str(caught.value).startswith(f"r.yaml:{line}:")
    assert message in str(caught.value)


def test_a_nul_character_is_a_problem() -> None:
    assert [problem.key for problem in parse_yaml('a: "x\\0y"', "r").problems] == ["a"]


def test_surrogates_from_the_command_line_are_refused() -> None:
    with pytest.raises(InputError, match="UTF-8"):
        parse_yaml("\udc80", "-s")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"# nothing\n", "empty"),
        (b"- a\n- b\n", "top level"),
        (b"just text\n", "top level"),
        (b"a: 1\nb: \xff\n", "r.yaml:2: not UTF-8"),
        ("a: ö".encode("utf-16"), "not UTF-8"),
        (b"\x00" * 100, "not YAML"),
        (b"a: " + b"x" * (1 << 20), "1 MiB"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_yaml(path)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: x\r\n")
    assert read_yaml(path).value == {"a": 1, "b": "x"}


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path, "folder"),
        (tmp_path / "gone", "no such file"),
        (tmp_path / "pipe", "device or pipe"),
    ):
        with pytest.raises(InputError, match=message):
            read_yaml(path)
