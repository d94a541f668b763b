"""docs/recipe.md is the generated reference; the JSON Schema accepts files as they are written."""

from pathlib import Path

from dlrmx.recipe.reference import json_schema, recipe_reference
from dlrmx.recipe.schema import Recipe, Settings
from dlrmx.recipe.tree import is_free, members

ROOT = Path(__file__).resolve().parents[2]


def test_the_docs_are_the_generated_text() -> None:
    """Red? python -m dlrmx.recipe.reference > docs/recipe.md"""
    assert (ROOT / "docs" / "recipe.md").read_text() == recipe_reference()


def test_no_paragraph_is_set_as_code() -> None:
    assert [line for line in recipe_reference().splitlines() if line.startswith("    ")] == []


def test_every_setting_is_described_and_says_what_a_resume_may_do() -> None:
    todo: list[type[Settings]] = [Recipe]
    seen: set[type[Settings]] = set()
    while todo:
        model = todo.pop()
        seen.add(model)
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            assert isinstance(field.json_schema_extra, dict)
            assert field.json_schema_extra["resume"] in ("fixed", "free")
            todo += [member for member in members(field.annotation) if member not in seen]
    assert len(seen) > 20


def test_a_free_section_holds_no_fixed_setting() -> None:
    todo: list[tuple[type[Settings], bool]] = [(Recipe, False)]
    while todo:
        model, inside_free = todo.pop()
        for name, field in model.model_fields.items():
            assert is_free(field) or not inside_free, f"{model.__name__}.{name}"
            todo += [(member, is_free(field)) for member in members(field.annotation)]


def test_the_json_schema_asks_only_for_what_a_file_must_hold() -> None:
    schema = json_schema()
    assert schema["required"] == ["dlrmx", "data", "model", "optimizer", "train"]
    assert "required" not in schema["$defs"]["Feature"]
    (entry,) = schema["properties"]["features"]["patternProperties"].values()
    assert {"type": "null"} in entry["anyOf"]
    assert schema["additionalProperties"] is False
