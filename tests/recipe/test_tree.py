"""What there is at a place of the schema."""

from typing import Any

import pytest

from dlrmx.recipe.schema import Exchange, Recipe, Synthetic, Tabular, Threshold, Thresholds
from dlrmx.recipe.tree import annotation_at, choices, field_at, is_free, leaves, members, tag


def test_the_members_of_a_union_and_what_tells_them_apart() -> None:
    models = members(Recipe.model_fields["data"].annotation)
    assert [tag(model) for model in models] == ["synthetic", "tabular", "criteo"]
    assert [tag(model) for model in members(Recipe.model_fields["train"].annotation)] == ["batch"]


@pytest.mark.parametrize(
    ("location", "found"),
    [
        (("exchange", "threshold", "dense"), Threshold | None),
        (("data", "tabular"), Tabular),
        (("model", "dlrm", "bottom", 0), None),  # a width: a number, no model
        (("no", "such"), None),
    ],
)
def test_the_annotation_at_a_place(location: tuple[str | int, ...], found: Any) -> None:
    there = annotation_at(Recipe, location)
    assert members(there) == members(found)


def test_a_field_at_a_place() -> None:
    field = field_at(Recipe, ("exchange", "forward"))
    assert field is not None
    assert choices(field.annotation) == ["fp32", "fp16", "bf16", "int8", "int4", "sign"]
    assert field_at(Recipe, ("exchange", "forwards")) is None
    assert field_at(Recipe, ()) is None


def test_leaves_by_dotted_key_and_those_that_a_resume_may_not_change() -> None:
    exchange = Exchange(threshold=Thresholds(dense=Threshold(sparsity=0.5)))
    every = dict(leaves(exchange, "exchange"))
    assert every["exchange.threshold.dense.sparsity"] == 0.5
    assert every["exchange.threshold.forward"] is None
    fixed = dict(leaves(exchange, "exchange", fixed_only=True))
    assert set(every) - set(fixed) == {f"exchange.{name}" for name in ("overlap", "messages", "chunks")}
    assert is_free(Exchange.model_fields["overlap"])
    assert not is_free(Synthetic.model_fields["rows"])
