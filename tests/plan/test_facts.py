"""What is known of a feature: from the facts, else the recipe."""

from dlrmx.plan.facts import poolings
from plan_recipes import plan_recipe


def test_pooling_comes_from_the_facts_then_the_recipe_then_one() -> None:
    class Feature:
        mean_pooling = 2.5
        hot: tuple[tuple[float, float], ...] = ()

    class Known:
        features = {"x": Feature(), "y": Feature(), "z": Feature()}

    recipe = plan_recipe({"a": 10, "b": 10}, features={"x": "a", "y": "a", "z": "b"}, pooling={"y": 4.0})
    assert poolings(recipe, None) == {"a": [1.0, 4.0], "b": [1.0]}
    assert poolings(recipe, Known()) == {"a": [2.5, 2.5], "b": [2.5]}
