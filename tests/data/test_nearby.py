"""Why there are no prepared data: nothing near, files that changed, another recipe's, or begun."""

from pathlib import Path

from data_recipes import tabular
from dlrmx.data.nearby import not_prepared
from dlrmx.data.prepare import prepare, prepared_path
from dlrmx.recipe.schema import Recipe


def made(*files: Path, rows: int = 9, separator: str | None = None) -> Recipe:
    return tabular(list(files), {"item": {"separator": separator}}, {"item": rows})


def test_each_reason(tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("y,item\n1,x\n")
    b.write_text("y,item\n0,x\n")

    def why(recipe: Recipe) -> str:
        return str(not_prepared(recipe, tmp_path, "r.yaml"))

    target = prepared_path(made(a), tmp_path)
    assert why(made(a)) == f"{target}: not prepared yet\n    prepare them: dlrmx data prepare r.yaml"
    target.with_name(f".work-{target.name}").mkdir(parents=True)
    assert "not prepared yet, but begun" in why(made(a))
    folder = prepare(made(a), tmp_path)
    assert f"{folder} is near: made alike, but {b} is new" in why(made(a, b))
    assert f"made alike, but {b} is new, {a} is gone" in why(made(b))
    assert "of these files; item: its ids are made for a table of 9 rows, item has 8" in why(made(a, rows=8))
    assert "of these files; rows are made otherwise" in why(made(a, separator="|"))
    a.write_text("y,item\n1,x\n0,y\n")
    assert f"made alike, but {a} was changed since" in why(made(a))
