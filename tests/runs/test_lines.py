import json
import multiprocessing
from pathlib import Path

import pytest

from dlrmx.runs.lines import append_line, last_line, read_lines


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for n in range(3):
        assert append_line(path, {"n": n, "text": "ä\nb"})
    assert list(read_lines(path)) == [{"n": n, "text": "ä\nb"} for n in range(3)]
    assert last_line(path) == {"n": 2, "text": "ä\nb"}


def test_no_file_is_no_lines(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "none")) == []
    assert last_line(tmp_path / "none") is None


@pytest.mark.parametrize("torn", [b'{"n":1,"te', b"\xff\xfe", b"[1, 2]", b'{"n":1}x'])
def test_a_torn_line_costs_itself_only(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"n":0}\n' + torn)
    assert list(read_lines(path)) == [{"n": 0}]
    assert last_line(path) == {"n": 0}
    append_line(path, {"n": 2})
    assert list(read_lines(path)) == [{"n": 0}, {"n": 2}]


def test_what_json_lacks_is_null(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, {"loss": float("nan"), "bytes": {"ids": float("inf")}, "rates": (1.0, float("-inf"))})
    text = path.read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"loss": None, "bytes": {"ids": None}, "rates": [1.0, None]}


def test_a_line_that_cannot_be_written_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    assert not append_line(Path("/dev/full"), {"n": 1})
    assert "/dev/full" in capsys.readouterr().err


def test_the_last_line_is_found_without_reading_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"long": "' + b"x" * 1000 + b'"}\n' + b'{"n":7}\n')
    assert last_line(path, window=64) == {"n": 7}


def _write(path: Path, writer: int) -> None:
    for n in range(50):
        append_line(path, {"writer": writer, "n": n, "filling": "x" * 500})


def test_lines_of_several_processes_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, writer)) for writer in range(4)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    lines = list(read_lines(path))
    for writer in range(4):
        assert [line["n"] for line in lines if line["writer"] == writer] == list(range(50))
