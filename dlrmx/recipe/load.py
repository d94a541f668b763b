"""Reads a recipe: file, overrides and profile become one valid value, or all problems at once. Writes it back."""

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import TypeAdapter, ValidationError

import dlrmx
from dlrmx.errors import InputError, Problem
from dlrmx.recipe.clusters import FoundProfile, resolve_profile
from dlrmx.recipe.explain import explain
from dlrmx.recipe.generate import expand
from dlrmx.recipe.kubernetes import checkpoints_stay
from dlrmx.recipe.names import near_miss
from dlrmx.recipe.overrides import apply_overrides
from dlrmx.recipe.profiles import Profile
from dlrmx.recipe.rules import check_rules
from dlrmx.recipe.schema import Recipe, merge_defaults
from dlrmx.recipe.tree import leaves
from dlrmx.recipe.yaml_file import Document, place_of, read_yaml, scalar


@dataclass(frozen=True)
class Loaded:
    """A valid recipe, where it runs, and which of file, profile, `-s` and default gave each dotted key its value."""

    recipe: Recipe
    profile: Profile
    source: Path
    origins: dict[str, str]
    places: dict[str, str]

    def located(self, error: InputError) -> InputError:
        """What files of data have wrong about a setting, with the recipe's line for it and the file behind."""
        return InputError([self._located(problem) for problem in error.problems])

    def _located(self, problem: Problem) -> Problem:
        place = place_of(problem.key, self.places)
        if not place:
            return problem
        what = f"{problem.what} in {problem.where}" if problem.where else problem.what
        return Problem(what, where=place, key=problem.key, hint=problem.hint)


def load_recipe(
    path: Path, overrides: Sequence[str] = (), *, cluster: str | None = None, nodes: int | None = None
) -> Loaded:
    """Read and check a recipe with `-s` overrides, --cluster and --nodes. InputError holds every problem found."""
    document, to_profile = apply_overrides(read_yaml(path), overrides)
    if cluster is not None:
        document.value["cluster"] = cluster
        document.places["cluster"] = "--cluster"
    document.value.setdefault("name", _name_from(path))
    _make_absolute(document, path.absolute().parent)
    document = expand(document)
    profile, profile_problems = _profile(document, to_profile, nodes)
    recipe, problems = _validate(document)
    problems = [*document.problems, *problems, *profile_problems]
    if recipe is not None and profile is not None:
        stay = checkpoints_stay(recipe, profile.profile)
        problems += [replace(p, where=profile.file) if profile.file else _placed(p, document) for p in stay]
    if problems or recipe is None or profile is None:
        raise InputError(sorted(problems, key=_by_line))
    if isinstance(recipe.cluster, dict):
        recipe = recipe.model_copy(update={"cluster": profile.profile.model_dump(mode="json", exclude_unset=True)})
    given = _Given.of(document.places)
    origins = {key: _origin(key, given) for key, _ in leaves(recipe) if not key.startswith("cluster.")}
    origins |= {f"cluster.{key}": origin for key, origin in profile.origins.items()}
    return Loaded(recipe, profile.profile, path, origins, document.places)


def find_recipe(text: str) -> Path:
    """A path, or the bare name of a shipped recipe; an existing path wins. InputError names what resembles it."""
    from dlrmx_recipes import shipped  # the recipes' package is found late: a path needs none of it

    if os.path.exists(text):
        return Path(text)
    recipes = shipped()
    if text in recipes:
        return recipes[text]
    raise InputError(f"{text}: no such file, and no shipped recipe of that name", hint=near_miss(text, recipes))


def read_frozen(path: Path) -> Recipe:
    """The resolved recipe that an attempt was given; paths in it are absolute already."""
    document = read_yaml(path)
    try:
        recipe = Recipe.model_validate(document.value)
    except ValidationError as error:
        problems = [*document.problems, *explain(error, document.value, Recipe)]
        raise InputError([_placed(problem, document) for problem in problems]) from error
    if document.problems:
        raise InputError(document.problems)
    return recipe


def dump_recipe(recipe: Recipe) -> str:
    """YAML that loads back to an equal recipe. What `defaults` gave a feature or table is written there alone.

    The text is ASCII: unescaped, PyYAML folds the line separator U+0085 into a blank.
    """
    raw = recipe.model_dump(mode="json")
    for group, shared in (("features", recipe.defaults.feature), ("tables", recipe.defaults.table)):
        for name, entry in raw[group].items():
            raw[group][name] = {key: value for key, value in entry.items() if key not in shared or shared[key] != value}
    text = yaml.dump(raw, Dumper=_Dumper, sort_keys=False, width=120, default_flow_style=None)
    return f"# resolved by dlrmx {dlrmx.__version__}\n{text}"


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.2 would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        plain = scalar(text) == text
    except ValueError:
        plain = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)


def _name_from(path: Path) -> str:
    """The file's stem as a name: movielens_100k.yaml -> movielens-100k."""
    plain = re.sub(r"[^a-z0-9-]+", "-", path.stem.lower()).strip("-")
    return (plain if plain[:1].isalpha() else f"recipe-{plain}".strip("-"))[:31]


def _make_absolute(document: Document, folder: Path) -> None:
    """Paths in the recipe begin at its folder, those of `-s` at the shell's."""
    raw = document.value
    data, sharding, train = raw.get("data"), raw.get("sharding"), raw.get("train")
    if isinstance(data, dict) and isinstance(data.get("files"), list):
        base = _folder_of("data.files", document, folder)
        base = Path(glob.escape(str(base)))  # a [ or * in a folder's name is no pattern
        data["files"] = [_absolute(entry, base) for entry in data["files"]]
    if isinstance(sharding, dict) and sharding.get("plan", "auto") != "auto":
        sharding["plan"] = _absolute(sharding["plan"], _folder_of("sharding.plan", document, folder))
    if isinstance(train, dict) and os.sep in str(train.get("init_from")):  # else it is a run's name
        train["init_from"] = _absolute(train["init_from"], _folder_of("train.init_from", document, folder))


def _folder_of(key: str, document: Document, folder: Path) -> Path:
    return Path.cwd() if place_of(key, document.places) == "-s" else folder


def _absolute(entry: Any, base: Path) -> Any:
    if not isinstance(entry, str) or not entry:
        return entry
    return os.path.normpath(base / os.path.expanduser(entry))


def _profile(document: Document, overrides: Document, nodes: int | None) -> tuple[FoundProfile | None, list[Problem]]:
    """The profile; where it is wrong its problems, and a stand-in in the recipe so that the rest can be checked."""
    try:
        cluster = document.value.get("cluster", "local")
        return resolve_profile(cluster, document.places, overrides, nodes), []
    except InputError as error:
        document.value["cluster"] = "local"
        return None, error.problems


def _validate(document: Document) -> tuple[Recipe | None, list[Problem]]:
    """The recipe, or what is wrong with it: each key, then the rules over all sections that are whole."""
    raw = document.value
    broken = {_section(problem) for problem in document.problems}
    try:
        recipe = Recipe.model_validate(raw)
        problems = []
    except ValidationError as error:
        unreadable = {problem.key for problem in document.problems}
        problems = [problem for problem in explain(error, raw, Recipe) if problem.key not in unreadable]
        broken |= {_section(problem) for problem in problems} | {str(found["loc"][0]) for found in error.errors()}
        recipe = _whole_sections(raw, broken)
    problems = problems + check_rules(recipe, frozenset(broken))
    placed = [_placed(problem, document) for problem in problems]
    return (None if problems else recipe), placed


def _whole_sections(raw: dict[str, Any], broken: set[str]) -> Recipe:
    """A recipe of the sections that are valid alone; the others are absent."""
    merged = merge_defaults(raw)
    sections: dict[str, Any] = {}
    for name, field in Recipe.model_fields.items():
        if name in broken:
            continue
        if name in raw:
            annotation: Any = Annotated[field.annotation, field]
            sections[name] = TypeAdapter(annotation).validate_python(merged[name])
        else:
            sections[name] = field.get_default(call_default_factory=True)
    return Recipe.model_construct(**sections)


def _section(problem: Problem) -> str:
    return re.split(r"[.\[]", problem.key, maxsplit=1)[0]


def _placed(problem: Problem, document: Document) -> Problem:
    return replace(problem, where=problem.where or place_of(problem.key, document.places) or document.name)


def _by_line(problem: Problem) -> tuple[str, int]:
    file, _, line = problem.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (problem.where, 0)


@dataclass(frozen=True)
class _Given:
    """Which keys were set, and where; `replaced` are the beginnings of all keys inside of what `-s` set."""

    places: dict[str, str]
    replaced: tuple[str, ...]

    @classmethod
    def of(cls, places: dict[str, str]) -> "_Given":
        return cls(places, tuple(key + sign for key, place in places.items() if place == "-s" for sign in ".["))

    def set_at(self, key: str) -> str:
        """The place where a leaf was set itself, or as part of a value that `-s` replaced."""
        return self.places.get(key) or ("-s" if key.startswith(self.replaced) else "")


def _origin(key: str, given: _Given) -> str:
    """Where a leaf's value came from: its own key, or `defaults` for a feature or table that does not set it."""
    group, _, rest = key.partition(".")
    place = given.set_at(key)
    if not place and group in ("features", "tables"):
        place = given.set_at(f"defaults.{group[:-1]}.{rest.partition('.')[2]}")
    if not place:
        return "default"
    return place if place.startswith("-") else f"recipe {place}"
