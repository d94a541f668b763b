"""Each kind of damage is found and named, file and tensor."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch

from checkpoint_cases import flip, make_run, save_all, save_small, whole
from dlrmx.checkpoint import verify
from dlrmx.checkpoint.verify import outline, problems, strangers

FILE = "rank-0000.safetensors"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return save_small(make_run(tmp_path), 100)


def test_a_good_one_has_no_problems(checkpoint: Path) -> None:
    assert problems(checkpoint) == []
    assert strangers(checkpoint) == []


def test_every_byte_of_the_file_counts(checkpoint: Path) -> None:
    path = checkpoint / FILE
    for offset in range(path.stat().st_size):
        flip(path, offset)
        assert problems(checkpoint), offset
        flip(path, offset)
    assert problems(checkpoint) == []


def test_a_flipped_byte_names_the_tensor_and_its_rows(checkpoint: Path) -> None:
    path = checkpoint / FILE
    (header_bytes,) = struct.unpack("<Q", path.read_bytes()[:8])
    start = json.loads(path.read_bytes()[8 : 8 + header_bytes])["table/user/weight@6:10"]["data_offsets"][0]
    flip(path, 8 + header_bytes + start)
    assert problems(checkpoint) == [f"{FILE}: table/user/weight rows [6, 10): the checksum does not match"]
    assert outline(checkpoint)[1] == []  # the sizes alone are as they were


def test_a_flipped_header_is_told_apart(checkpoint: Path) -> None:
    flip(checkpoint / FILE, 20)
    assert problems(checkpoint) == [f"{FILE}: header: the checksum does not match"]


def test_short_long_and_missing(checkpoint: Path) -> None:
    path = checkpoint / FILE
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    assert problems(checkpoint) == [f"{FILE}: short: {len(content) - 3} of {len(content)} bytes"]
    path.write_bytes(b"")
    assert problems(checkpoint) == [f"{FILE}: short: 0 of {len(content)} bytes"]
    path.write_bytes(content + b"!")
    assert problems(checkpoint) == [f"{FILE}: {len(content) + 1} bytes, 1 more than were written"]
    path.unlink()
    assert problems(checkpoint) == [f"{FILE}: missing"]


def test_manifest_missing_damaged_foreign(checkpoint: Path, tmp_path: Path) -> None:
    manifest = checkpoint / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"row": 3200', '"row": 3201'))
    assert problems(checkpoint) == ["manifest.json: its checksum does not match"]
    manifest.write_text(text[: len(text) // 2])
    assert problems(checkpoint)[0].startswith("manifest.json: ")
    manifest.write_text('{"architectures": ["Bert"]}')
    assert "not a manifest of dlrmx" in problems(checkpoint)[0]
    manifest.unlink()
    assert problems(checkpoint) == ["foreign: no manifest.json"]
    assert problems(tmp_path / "nowhere") == ["missing"]
    manifest.write_text(text)
    assert problems(manifest) == ["foreign: not a directory"]


def test_a_copy_under_another_steps_name_is_refused(checkpoint: Path) -> None:
    other = checkpoint.parent / "step-00000300"
    shutil.copytree(checkpoint, other)
    assert problems(other) == ["holds step 100 by its manifest"]


def test_a_copy_elsewhere_is_as_good(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "model")
    assert problems(tmp_path / "model") == []


def test_a_leftover_says_whose_it_is(checkpoint: Path) -> None:
    other = checkpoint.parent / ".step-00000200.attempt-0003"
    shutil.copytree(checkpoint, other)
    assert problems(other) == ["left over: attempt 3 began to save step 200 and did not finish"]


def test_strangers_are_named_and_no_damage(checkpoint: Path) -> None:
    (checkpoint / "notes.txt").write_text("the good one")
    (checkpoint / "rank-0007.safetensors").write_bytes(b"")
    assert strangers(checkpoint) == ["notes.txt", "rank-0007.safetensors"]
    assert problems(checkpoint) == []


def test_files_swapped_between_ranks_are_found(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    one, two = (save_all(run, None, step, [whole("t", torch.full((8,), float(step)))]).path for step in (1, 2))
    shutil.copy(one / FILE, two / FILE)  # same size, same header
    assert problems(two) == [f"{FILE}: t rows [0, 8): the checksum does not match"]


def test_checksums_are_taken_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = save_all(make_run(tmp_path), None, 1, [whole("t", torch.arange(1000))]).path
    monkeypatch.setattr(verify, "BLOCK_BYTES", 96)  # 8,000 bytes are no multiple of it
    assert problems(checkpoint) == []
    flip(checkpoint / FILE, -1)
    assert len(problems(checkpoint)) == 1
