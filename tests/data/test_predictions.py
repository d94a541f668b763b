"""Scores as a file."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from dlrmx.data import predictions
from dlrmx.data.predictions import Predictions
from dlrmx.errors import DlrmxError


def rows(*values: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize("group", [1, 2, 100])
def test_scores_are_probabilities_in_order_with_labels_where_there_are(
    tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "GROUP_ROWS", group)
    with Predictions(tmp_path / "out.parquet") as written:
        written.append(rows(0, 200), rows(1, 0))
        written.append(rows(), rows())
        written.append(rows(-200, np.log(3)), rows(np.nan, 1))
        assert not (tmp_path / "out.parquet").exists()
        written.publish()
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("score").to_pylist() == pytest.approx([0.5, 1, 0, 0.75])
    assert table.column("label").to_pylist() == [1, 0, None, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_no_rows_are_a_file_too(tmp_path: Path) -> None:
    with Predictions(tmp_path / "out.parquet") as written:
        written.publish()
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == 0


def test_what_is_not_published_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "GROUP_ROWS", 1)
    with Predictions(tmp_path / "out.parquet") as written:
        written.append(rows(1), rows(1))
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_where_nothing_is_asked_for() -> None:
    with Predictions(None) as written:
        written.publish()


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "out.parquet"
    with pytest.raises(DlrmxError, match=f"cannot write {path}"), Predictions(path) as written:
        written.append(rows(1), rows(1))
        written.publish()
