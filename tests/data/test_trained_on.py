"""Files that a trained model is to score: prepared with its vocabularies, a row for each of theirs, labelled or not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_recipes import tabular, whole
from dlrmx.data.manifest import read_manifest, verify
from dlrmx.data.permute import restore_ids
from dlrmx.data.prepare import prepare, prepared_path
from dlrmx.errors import InputError

FEATURES: dict[str, Any] = {"user": {"ids": "vocabulary"}, "tags": {"ids": "vocabulary", "separator": "|"}}
ROWS = {"user": 9, "tags": 9}
TRAINED = "y,user,tags,n\n1,b,x|z,1\n0,a,z,2\n1,b,z,3\n"


def data(tmp_path: Path, text: str, **settings: Any) -> tuple[Path, Path]:
    """The prepared data of TRAINED, and those of a file to score."""
    (tmp_path / "trained.csv").write_text(TRAINED)
    (tmp_path / "scored.csv").write_text(text)
    trained_on = prepare(recipe(tmp_path / "trained.csv", **settings), tmp_path)
    return trained_on, prepare(recipe(tmp_path / "scored.csv", **settings), tmp_path, trained_on=trained_on)


def recipe(path: Path, **settings: Any) -> Any:
    return tabular([path], FEATURES, ROWS, dense={"n": {}}, data=settings)


def plain(folder: Path, feature: str) -> list[int]:
    return [int(number) for number in restore_ids(whole(folder).bags[feature].ids, ROWS[feature])]


def test_values_have_the_ids_of_training(tmp_path: Path) -> None:
    trained_on, scored = data(tmp_path, "y,user,tags,n\n0,a,x,1\n0,a,new|x,1\n0,a,,1\n1,c,z|x,1\n")
    assert plain(trained_on, "user") == [2, 3, 2]  # b is more frequent
    assert plain(scored, "user") == [3, 3, 3, 1]  # here a is; c is unseen
    assert plain(scored, "tags") == [3, 1, 3, 0, 2, 3]
    facts = read_manifest(scored).features
    assert (facts["user"].unseen, facts["tags"].unseen, facts["tags"].missing) == (1, 1, 1)
    verify(scored)
    names = [name for name in read_manifest(trained_on).files if name.startswith("vocabulary-")]
    assert len(names) == 3  # one for each table, and what found no room
    assert all((trained_on / name).read_bytes() == (scored / name).read_bytes() for name in names)


def test_it_differs_from_data_to_train_on(tmp_path: Path) -> None:
    trained_on, scored = data(tmp_path, TRAINED)
    other = recipe(tmp_path / "scored.csv")
    assert prepare(other, tmp_path) != scored
    assert prepared_path(other, tmp_path, trained_on) == scored
    assert prepare(other, tmp_path, trained_on=trained_on) == scored


def test_without_a_label_column_no_row_has_one(tmp_path: Path) -> None:
    _, scored = data(tmp_path, "user,tags,n\na,x,5\nb,z,6\n")
    assert np.isnan(whole(scored).labels).all()
    assert whole(scored).dense[:, 0].tolist() == [5, 6]
    facts = read_manifest(scored).splits["train"]
    assert (facts.rows, facts.labelled, facts.label_mean) == (2, 0, None)


@pytest.mark.parametrize("label", [{"column": "y"}, {"column": "y", "threshold": 1}])
def test_some_rows_may_have_no_label(tmp_path: Path, label: dict[str, Any]) -> None:
    _, scored = data(tmp_path, "y,user,tags,n\n1,a,x,1\n,a,x,1\n0,a,x,1\n1,a,x,1\n", label=label)
    assert whole(scored).labels.tolist() == pytest.approx([1, np.nan, 0, 1], nan_ok=True)
    assert read_manifest(scored).splits["train"].label_mean == pytest.approx(2 / 3)


def test_a_wrong_label_is_bad_as_in_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"scored.csv:2: y: the label is 2"):
        data(tmp_path, "y,user,tags,n\n2,a,x,1\n")


def test_rows_that_training_would_skip_stay_without_a_label(tmp_path: Path) -> None:
    _, scored = data(tmp_path, "y,user,tags,n\n1,a,x,7\n1,a\n1,a,x,wrong\n0,b,x,9\n", bad_rows="skip")
    assert whole(scored).labels.tolist() == pytest.approx([1, np.nan, np.nan, 0], nan_ok=True)
    assert whole(scored).dense[:, 0].tolist() == [7, 0, 0, 9]
    assert plain(scored, "user") == [3, 0, 3, 2]
    rows = read_manifest(scored).rows
    assert (rows.read, rows.bad) == (4, 2)


def test_files_that_lack_a_feature_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column tags"):
        data(tmp_path, "user,n\na,1\n")


def test_without_the_trained_datas_vocabularies_there_are_no_ids(tmp_path: Path) -> None:
    (tmp_path / "scored.csv").write_text(TRAINED)
    with pytest.raises(InputError, match="no prepared data"):
        prepare(recipe(tmp_path / "scored.csv"), tmp_path, trained_on=tmp_path / "gone")


def test_damaged_vocabularies_are_named(tmp_path: Path) -> None:
    trained_on, _ = data(tmp_path, TRAINED)
    (tmp_path / "more.csv").write_text(TRAINED)
    kept = trained_on / "vocabulary-0.parquet"
    kept.write_bytes(kept.read_bytes()[::-1])  # of the same size
    with pytest.raises(InputError, match=r"vocabulary-0.parquet: its content is not what was written"):
        prepare(recipe(tmp_path / "more.csv"), tmp_path, trained_on=trained_on)
    kept.unlink()
    with pytest.raises(InputError, match=r"vocabulary-0.parquet: missing from the prepared data"):
        prepare(recipe(tmp_path / "more.csv"), tmp_path, trained_on=trained_on)


def test_several_files_are_scored_in_their_order(tmp_path: Path) -> None:
    trained_on, _ = data(tmp_path, TRAINED)
    for number in (10, 9):
        (tmp_path / f"part_{number}.csv").write_text("y,user,tags,n\n" + f",a,x,{number}\n1,b,z,{number}\n")
    scored = prepare(recipe(tmp_path / "part_*.csv"), tmp_path, trained_on=trained_on)
    assert whole(scored).dense[:, 0].tolist() == [9, 9, 10, 10]
    assert whole(scored).labels.tolist() == pytest.approx([np.nan, 1, np.nan, 1], nan_ok=True)
    facts = read_manifest(scored).splits["train"]
    assert (facts.rows, facts.labelled, facts.label_mean) == (4, 2, 1)
