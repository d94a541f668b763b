"""`-s a.b.c=value`: sets one key of a recipe, the value read as YAML. `-s cluster.*` goes to the profile."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dlrmx.errors import InputError, Problem
from dlrmx.recipe.yaml_file import Document, parse_yaml

UNITS = {"epochs", "steps", "minutes"}


def apply_overrides(document: Document, overrides: Sequence[str]) -> tuple[Document, Document]:
    """The recipe with its overrides, and what they say about the profile. The later of two overrides wins."""
    recipe = replace(
        document,
        value=copy.deepcopy(document.value),
        places=dict(document.places),
        problems=list(document.problems),
    )
    profile = Document({})
    for text in overrides:
        key, found = _parse(text)
        recipe.problems.extend(found.problems)
        if "" in key:
            recipe.problems.append(
                Problem("is not a.b.c=value", where=f"-s {text}", hint="for example -s train.batch=4096")
            )
        elif key[0] == "cluster" and len(key) > 1:
            _set(profile, key[1:], found)
        else:
            _set(recipe, key, found)
    return recipe, profile


def _parse(text: str) -> tuple[list[str], Document]:
    """The keys on the way and the value; keys [""] where the text has none."""
    key, equals, value = text.partition("=")
    if not equals:
        return [""], Document(None)
    try:
        found = parse_yaml(value, "-s")
    except InputError as error:
        found = Document(None, problems=error.problems)
    problems = [replace(problem, where="-s", key=_below(key.strip(), problem.key)) for problem in found.problems]
    return key.strip().split("."), Document(found.value, found.places, problems)


def _below(key: str, rest: str) -> str:
    return f"{key}.{rest}" if rest and not rest.startswith("[") else key + rest


def _set(target: Document, key: list[str], found: Document) -> None:
    """Put the value at its key and forget the places of what it replaces."""
    node: dict[str, Any] = target.value
    for position, step in enumerate(key[:-1]):
        child = node.get(step)
        if child is None:
            child = node[step] = {}
        if not isinstance(child, dict):
            parent = ".".join(key[: position + 1])
            target.problems.append(Problem(f"{parent} holds no keys that could be set", where="-s", key=".".join(key)))
            return
        node = child
    if key[-1] in UNITS and node.keys() <= UNITS:
        node.clear()  # a distance has one unit: steps=100 replaces epochs
    node[key[-1]] = found.value
    dotted = ".".join(key)
    for place in [
        place for place in target.places if place == dotted or place.startswith((f"{dotted}.", f"{dotted}["))
    ]:
        del target.places[place]
    target.places[dotted] = "-s"
