"""The manifest: what it says comes back, and nothing damaged or foreign passes for one."""

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlrmx.checkpoint.manifest import (
    CheckpointManifest,
    Entry,
    FileInfo,
    TensorInfo,
    from_json,
    read_manifest,
    to_json,
    uncovered,
    write_manifest,
)
from dlrmx.errors import InputError

LEFT = Entry("rank-0000.safetensors", "t@0:3,0:4", (0, 3), (0, 4), 7)
RIGHT = Entry("rank-0001.safetensors", "t@0:3,4:12", (0, 3), (4, 12), 8)
TABLE = TensorInfo((3, 12), "F16", per_row=False, entries=(LEFT, RIGHT))
SUMS = TensorInfo((3,), "F32", per_row=True, entries=(LEFT, RIGHT))
SCALAR = TensorInfo((), "I64", per_row=False, entries=(Entry("rank-0000.safetensors", "s", (0, 1), None, 9),))
MANIFEST = CheckpointManifest(
    step=1000,
    attempt=2,
    state={"row": 32000, "metrics": {"validation.ne": 0.81, "validation.auc": None}, "features": ["user", "ärger"]},
    files={f"rank-000{rank}.safetensors": FileInfo(500, 100, 3) for rank in (0, 1)},
    tensors={"table/t/weight": TABLE, "table/t/rowwise_adagrad.sum": SUMS, "s": SCALAR},
)


def test_round_trip() -> None:
    assert from_json(to_json(MANIFEST)) == MANIFEST


def test_written_and_read(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST


def test_it_is_plain_json_with_format_and_parent_and_a_line_per_tensor() -> None:
    text = to_json(MANIFEST)
    raw = json.loads(text)["manifest"]
    assert (raw["format"], raw["parent"], raw["step"]) == (1, None, 1000)
    assert raw["tensors"]["table/t/weight"]["entries"][1]["cols"] == [4, 12]
    assert sum(line.startswith('"table/t/') for line in text.splitlines()) == 2


def test_bytes_and_metrics() -> None:
    assert TABLE.bytes == 3 * 12 * 2
    assert SUMS.bytes == 2 * 3 * 4
    assert SCALAR.bytes == 8
    assert MANIFEST.bytes == 1000
    assert MANIFEST.metrics == {"validation.ne": 0.81}


def test_no_digit_can_be_flipped_unseen() -> None:
    text = to_json(MANIFEST)
    digits = [index for index, letter in enumerate(text) if letter.isdigit()]
    assert len(digits) > 100
    for index in digits:
        damaged = text[:index] + ("1" if text[index] != "1" else "2") + text[index + 1 :]
        with pytest.raises(ValueError):
            from_json(damaged)


def test_int_keys_of_a_state_do_not_upset_the_checksum() -> None:
    state: dict[str, Any] = {"histogram": {10: 1, 9: 2}}
    assert from_json(to_json(replace(MANIFEST, state=state))).state == {"histogram": {"10": 1, "9": 2}}


def test_nan_in_the_state_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(replace(MANIFEST, state={"loss": float("nan")}))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", "null", '{"manifest": []}', '{"weights": {}}', "[" * 100_000],
    ids=lambda t: t[:9],
)
def test_what_is_none_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)


def forged(**changes: object) -> str:
    """A manifest with changes and a checksum that fits, as a stranger could make it."""
    body = json.loads(to_json(MANIFEST))["manifest"] | changes
    crc32 = zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    return json.dumps({"crc32": crc32, "manifest": body})


def test_a_later_format_is_named() -> None:
    with pytest.raises(ValueError, match="format 2; this dlrmx reads 1"):
        from_json(forged(format=2))


def test_a_stranger_cannot_name_files_elsewhere() -> None:
    assert from_json(forged()) == MANIFEST
    with pytest.raises(ValueError, match="file name"):
        from_json(forged(files={"../../secret": {"bytes": 1, "header_bytes": 1, "header_crc32": 1}}))
    entry = {"file": "/etc/passwd", "key": "k", "rows": [0, 1], "cols": None, "crc32": 0}
    with pytest.raises(ValueError, match="file name"):
        from_json(forged(tensors={"t": {"shape": [1], "dtype": "F32", "per_row": False, "entries": [entry]}}))
    with pytest.raises(ValueError, match="dtype"):
        from_json(forged(tensors={"t": {"shape": [1], "dtype": "object", "per_row": False, "entries": []}}))


def test_missing_and_damaged_are_input_errors_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such checkpoint\n.*checkpoints list"):
        read_manifest(tmp_path / "step-00000001")
    with pytest.raises(InputError, match=r"not a checkpoint: it has no manifest.json"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="manifest.json: .*decode"):
        read_manifest(tmp_path)


def cut(shape: tuple[int, ...], *spans: tuple[tuple[int, int], tuple[int, int] | None], per_row: bool = False) -> str:
    return uncovered(TensorInfo(shape, "F32", per_row, tuple(Entry("f", "k", rows, cols, 0) for rows, cols in spans)))


def test_covers() -> None:
    assert not uncovered(TABLE)
    assert not uncovered(SUMS)
    assert not uncovered(SCALAR)
    assert not cut((4, 8), ((0, 2), None), ((2, 4), (0, 4)), ((2, 3), (4, 8)), ((3, 4), (4, 8)))
    assert not cut((2, 3, 5), ((0, 1), None), ((1, 2), None))
    assert not cut((0,))
    assert not cut((5, 0))
    assert not cut((4,), ((0, 2), None), ((2, 4), None), per_row=True)


def test_gaps_and_overlaps_are_found() -> None:
    assert "16 of 4 x 8" in cut((4, 8), ((0, 2), None))
    assert "overlap" in cut((4, 8), ((0, 3), None), ((2, 4), None))
    assert "overlap" in cut((4, 8), ((0, 4), (0, 5)), ((0, 4), (4, 8)))
    # the same area as the whole, but one rectangle twice and one not at all
    assert "overlap" in cut((4, 8), ((0, 2), None), ((0, 2), None))
    assert "not within" in cut((4, 8), ((0, 2), None), ((3, 5), None))
    assert "not within" in cut((4, 8), ((0, 4), (0, 4)), ((0, 4), (8, 12)))
    assert "overlap" in cut((), ((0, 1), None), ((0, 1), None))
    assert "0 of 1 x 1" in cut(())
    assert "48 of 4 x 16" in cut((4,), ((0, 4), (0, 8)), ((0, 2), (8, 16)), per_row=True)
