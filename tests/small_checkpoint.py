"""A checkpoint of one small tensor, and damage to it."""

from pathlib import Path

import torch

from dlrmx.checkpoint.manifest import Json
from dlrmx.checkpoint.write import Piece, save
from dlrmx.runs.layout import RunPaths


def save_checkpoint(run: RunPaths, step: int, *, epoch: int = 0) -> Path:
    """A real checkpoint of one small tensor."""
    piece = Piece("dense/bias", (4,), (0, 4), None, torch.arange(4, dtype=torch.float32))
    state: dict[str, Json] = {"step": step, "epoch": epoch, "row": step * 128, "metrics": {"validation.ne": 1 / step}}
    return save(run, step=step, attempt=1, pieces=[piece], state=state, group=None, on_phase=lambda _: None).path


def damage(checkpoint: Path) -> None:
    (file,) = checkpoint.glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
