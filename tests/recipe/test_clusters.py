"""Profiles: by name, inline, overridden; where they are found; what they mean on this machine."""

import getpass
import os
import re
from pathlib import Path

import pytest

from dlrmx.errors import InputError
from dlrmx.recipe.clusters import find_profile, host_memory_bytes, profile_names, workers_per_node, world_size
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.profiles import LocalProfile


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell in an empty folder with an empty configuration folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_local_is_built_in(elsewhere: Path) -> None:
    profile = find_profile("local")
    assert (profile.scheduler, profile.nodes, profile.grace.minutes) == ("local", 1, 5)
    assert profile.root == str(elsewhere / "runs")


def test_the_nearest_file_of_a_name_wins(elsewhere: Path) -> None:
    write(elsewhere / "config/dlrmx/clusters/big.yaml", "workers_per_node: 3")
    assert find_profile("big").workers_per_node == 3
    write(elsewhere / "clusters/big.yaml", "workers_per_node: 4")
    assert find_profile("big").workers_per_node == 4
    assert profile_names() == ["big", "dgx_a100_80", "dgx_h100", "hgx_h200", "local", "zionex"]
    assert find_profile("config/dlrmx/clusters/big.yaml").workers_per_node == 3


def test_an_unknown_name_has_a_near_miss_and_the_folders(example: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)--cluster: cluster: no cluster profile.*did you mean local\?.*clusters"):
        load_recipe(example, cluster="lokal")


def test_overrides_apply_to_a_named_profile(example: Path) -> None:
    loaded = load_recipe(example, ["cluster.workers_per_node=3", "cluster.env.A=x"], nodes=1)
    assert (loaded.profile.workers_per_node, loaded.profile.env, loaded.recipe.cluster) == (3, {"A": "x"}, "local")
    origins = loaded.origins
    assert (origins["cluster.workers_per_node"], origins["cluster.nodes"]) == ("-s", "--nodes")
    assert origins["cluster.root"] == "default"


def test_overrides_apply_to_an_inline_profile_and_stay_in_the_recipe(example: Path) -> None:
    loaded = load_recipe(
        example, ["cluster={workers_per_node: 2, env: {A: x}}", "cluster.workers_per_node=3", "cluster.env.B=y"]
    )
    assert loaded.profile.env == {"A": "x", "B": "y"}
    assert loaded.recipe.cluster == {"workers_per_node": 3, "env": {"A": "x", "B": "y"}, "root": loaded.profile.root}


def test_the_option_swaps_the_whole_profile(example: Path, elsewhere: Path) -> None:
    write(elsewhere / "clusters/big.yaml", "workers_per_node: 4\nroot: /x\n")
    inline = ["cluster={workers_per_node: 2, memory_gib: 3}"]
    loaded = load_recipe(example, inline, cluster="big")
    assert (loaded.profile.workers_per_node, loaded.profile.memory_gib, loaded.recipe.cluster) == (4, None, "big")
    assert loaded.origins["cluster.root"] == "profile big"


@pytest.mark.parametrize(
    ("override", "key", "message"),
    [
        ("cluster.nodes=2", "cluster.nodes", "must be 1, not 2: local is this machine"),
        ("cluster.scheduler=slrum", "cluster.scheduler", "local, slurm, kubernetes"),
        ("cluster.worker=3", "cluster.worker", "did you mean workers_per_node?"),
        ("cluster.workers_per_node=0", "cluster.workers_per_node", "at least 1"),
        ("cluster.env.RANK=x", "cluster.env.RANK", "set by the launcher"),
        ("cluster.env.A=1", "cluster.env.A", "quote it"),
        ("cluster.grace=5", "cluster.grace", "mapping"),
        ("cluster=5", "cluster", "a profile's name, or a mapping"),
        ("cluster={nodes: 2}", "cluster.nodes", "must be 1"),
    ],
)
def test_problems_are_keyed_below_cluster(example: Path, override: str, key: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(example, [override])
    assert [(problem.key, problem.where) for problem in caught.value.problems] == [(key, "-s")]
    assert message in str(caught.value)


def test_a_root_that_is_not_utf8_is_refused(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.fsencode(tmp_path) + b"/b\xff"
    os.mkdir(folder)
    monkeypatch.chdir(os.fsdecode(folder))
    with pytest.raises(InputError) as caught:
        load_recipe(example)
    assert [problem.key for problem in caught.value.problems] == ["cluster.root"]
    assert "not UTF-8" in str(caught.value)


def test_problems_of_profile_and_recipe_come_together_each_with_its_file(example: Path, elsewhere: Path) -> None:
    write(elsewhere / "clusters/big.yaml", "nodes: 2\nnodes: 3\nworker: 4\n")
    with pytest.raises(InputError) as caught:
        load_recipe(example, ["train.batch=0"], cluster="big")
    assert [(problem.where, problem.key) for problem in caught.value.problems] == [
        ("-s", "train.batch"),
        ("clusters/big.yaml:2", "cluster.nodes"),  # given twice; and above 1 on this machine
        ("clusters/big.yaml:2", "cluster.nodes"),
        ("clusters/big.yaml:3", "cluster.worker"),
    ]


def test_the_root_is_filled_in_and_absolute(example: Path, elsewhere: Path) -> None:
    roots = {
        "x/../y": elsewhere / "y",
        "~/r": elsewhere / "home/r",
        "/s/{user}/r": Path("/s") / getpass.getuser() / "r",
    }
    for given, expected in roots.items():
        assert load_recipe(example, [f'cluster.root="{given}"']).profile.root == str(expected)


def test_world_and_memory() -> None:
    profile = LocalProfile(workers_per_node=4, memory_gib=2)
    assert (world_size(profile), host_memory_bytes(profile)) == (4, 2**31)
    assert workers_per_node(LocalProfile()) >= 1
    machine_bytes = int(re.findall(r"MemTotal: *(\d+)", Path("/proc/meminfo").read_text())[0]) * 1024
    assert host_memory_bytes(LocalProfile(workers_per_node=2)) == pytest.approx(machine_bytes, rel=0.01)


def test_a_user_without_a_name_has_a_number(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_name() -> str:
        raise KeyError("uid")

    monkeypatch.setattr(getpass, "getuser", no_name)
    assert load_recipe(example, ['cluster.root="/s/{user}"']).profile.root == f"/s/{os.getuid()}"


def test_a_kind_of_node_can_be_planned_for_by_its_name(elsewhere: Path, example: Path) -> None:
    loaded = load_recipe(example, cluster="zionex", nodes=16)
    assert (loaded.profile.scheduler, world_size(loaded.profile)) == ("none", 128)
    write(elsewhere / "clusters/zionex.yaml", "workers_per_node: 3")  # a file of that name wins
    assert find_profile("zionex").scheduler == "local"
