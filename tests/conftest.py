"""Fixtures that several areas share."""

import os
from pathlib import Path

import pytest

# The tests start many processes on few cores; one thread each also fixes the order of sums.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Test material too large for the repository: DLRMX_SHARED, or `shared` beside the checkout; else a skip."""
    folder = Path(os.environ.get("DLRMX_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared test material at {folder} (set DLRMX_SHARED)")
    return folder
