"""Text and JSON as they leave the program."""

import json

import pytest

from dlrmx_cli.output import pairs, print_json, print_result, printable, say, say_error, table


def test_columns_are_aligned_and_numbers_to_the_right() -> None:
    text = table(["name", "rows"], [["user", "7"], ["a-long-one", "1,000"]], right=["rows"])
    assert text.splitlines() == ["name         rows", "user            7", "a-long-one  1,000"]


WIDE = (["run", "loss", "state", "path"], [["a", "0.5", "done", "/runs/a"], ["b", "0.25", "", "/runs/b"]])


def test_columns_that_do_not_fit_stand_below_by_name() -> None:
    assert table(*WIDE, right=["loss"], width=16).splitlines() == [
        "run  loss  state",
        "a     0.5  done",
        "    path /runs/a",
        "b    0.25",
        "    path /runs/b",
    ]
    assert table(*WIDE, width=15).splitlines()[:5] == [
        "run  loss",
        "a    0.5",
        "    state done",
        "    path",
        "    /runs/a",
    ]
    long = table(["run", "about", "n", "m"], [["a", "x" * 30, "1", "2"]], width=28).splitlines()
    assert long == ["run", "a", "    about", f"    {'x' * 30}", "    n 1  m 2"]  # never torn: it may be a path


def test_columns_that_fit_and_those_of_a_pipe_stay_in_their_line() -> None:
    assert table(*WIDE, width=25) == table(*WIDE) == table(*WIDE, width=None)
    assert max(map(len, table(*WIDE).splitlines())) == 25


def test_a_table_without_rows_is_its_header() -> None:
    assert table(["run", "state"], []) == "run  state"


def test_facts_are_aligned() -> None:
    assert pairs({"step": "10", "path": "/x"}).splitlines() == ["step  10", "path  /x"]


def test_json_opens_with_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(runs=[1])
    out = capsys.readouterr().out
    assert json.loads(out) == {"version": 1, "runs": [1]}
    assert next(iter(json.loads(out))) == "version"


def test_an_error_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("no such thing\n    try another")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].endswith("no such thing")


def test_control_characters_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    name = "item\x1b[2J\x07\x9b31m\ttab\nline"
    assert printable(name) == "item\\x1b[2J\\x07\\x9b31m\ttab\nline"
    for show in (print_result, say, say_error):
        show(name)
    captured = capsys.readouterr()
    assert "\x1b[2J" not in captured.out + captured.err
    assert "\x07" not in captured.out + captured.err


# What turns the direction of writing, takes no room, ends a line, or is half a character (of a file's name).
HIDDEN = ("\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\ufeff", "\u2028", "\x85", "\udcff", "\U000e0041")


@pytest.mark.parametrize("char", HIDDEN)
def test_what_has_a_text_look_like_another_is_shown(char: str, capsys: pytest.CaptureFixture[str]) -> None:
    for show in (print_result, say, say_error):
        show(f"gnp{char}.yaml")
    captured = capsys.readouterr()
    assert char not in captured.out + captured.err
    assert f"gnp\\{ascii(char)[2:-1]}.yaml" in captured.out


def test_letters_of_any_language_stay_as_they_are() -> None:
    name = "Größe 年龄 возраст عمر کتاب\u200cها 👩\u200d🚀 █"
    assert printable(name) == name


def test_a_cell_stays_in_its_line_and_column() -> None:
    text = table(["name", "rows"], [["it\nem\t\x1b", "7"], ["user", "1,000"]])
    assert text.splitlines() == ["name          rows", "it\\nem\\t\\x1b  7", "user          1,000"]
    assert pairs({"na\nme": "a"}) == "na\\nme  a"
