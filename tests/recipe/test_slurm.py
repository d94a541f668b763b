"""Slurm profiles: what is refused before anything is submitted, with its key and a way out."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrmx.errors import InputError
from dlrmx.recipe.clusters import find_profile, workers_per_node
from dlrmx.recipe.load import load_recipe
from dlrmx.recipe.profiles import SlurmProfile
from dlrmx.recipe.sbatch import seconds_of
from fake_job import RECIPE

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "clusters" / "slurm.yaml"


def load(folder: Path, *settings: str, **changes: Any) -> SlurmProfile:
    (folder / "tiny.yaml").write_text(RECIPE + yaml.safe_dump({"cluster": {"scheduler": "slurm", **changes}}))
    profile = load_recipe(folder / "tiny.yaml", settings).profile
    assert isinstance(profile, SlurmProfile)
    return profile


def problems(folder: Path, *settings: str, **changes: Any) -> dict[str, str]:
    """What is wrong, by key: text and hint."""
    with pytest.raises(InputError) as refused:
        load(folder, *settings, **changes)
    return {problem.key: f"{problem.what} ({problem.hint})" for problem in refused.value.problems}


def test_the_example_is_one() -> None:
    profile = find_profile(str(EXAMPLE))
    assert isinstance(profile, SlurmProfile)
    assert (profile.partition, profile.time, profile.gpus, workers_per_node(profile)) == ("h100", "24:00:00", 8, 8)


def test_workers_are_those_of_the_nodes_whatever_this_machine_has(tmp_path: Path) -> None:
    assert workers_per_node(load(tmp_path, gpus=4)) == 4
    assert workers_per_node(load(tmp_path)) == 2
    assert workers_per_node(load(tmp_path, workers_per_node=6)) == 6


def test_options_pass_through(tmp_path: Path) -> None:
    profile = load(
        tmp_path, "cluster.sbatch.reservation=night shift", sbatch={"mem": "64G", "no-bell": True, "nice": 5}
    )
    assert profile.sbatch == {"reservation": "night shift"}, "a mapping is replaced as a whole"
    assert load(tmp_path, sbatch={"mem": "64G", "nice": 5}).sbatch == {"mem": "64G", "nice": 5}


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("partition", "x", "is given by dlrmx itself (say it with `partition`)"),
        ("gpus-per-node", 8, "say it with `gpus`"),
        ("signal", "USR1", "say it with `grace`"),
        ("output", "x.log", "take it out"),
        ("array", "1-4", "take it out"),
        ("no-requeue", True, "take it out"),
        ("export", "NONE", "take it out"),
        ("mem", "1G\n#SBATCH --uid=0", "must be one line"),
        ("nice", False, "has no effect when false"),
    ],
)
def test_an_option_that_would_undo_ours_is_refused(tmp_path: Path, option: str, value: object, told: str) -> None:
    assert told in problems(tmp_path, sbatch={option: value})[f"cluster.sbatch.{option}"]


@pytest.mark.parametrize("option", ["--mem", "mem per cpu", "Mem", "m", "mem;true", "mem_per_cpu"])
def test_an_option_is_a_long_name(tmp_path: Path, option: str) -> None:
    (told,) = problems(tmp_path, sbatch={option: 1}).values()
    assert "an option's long name" in told


@pytest.mark.parametrize("time", ["1:2:3:4", "tomorrow", "24h", "-1", "1-"])
def test_a_time_that_slurm_would_refuse(tmp_path: Path, time: str) -> None:
    assert "HH:MM:SS" in problems(tmp_path, time=time)["cluster.time"]


@pytest.mark.parametrize("time", ["30", "30:00", "24:00:00", "2-00:00:00", "1-12"])
def test_a_time_that_slurm_takes(tmp_path: Path, time: str) -> None:
    assert load(tmp_path, time=time).time == time


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "aws_secret_access_key", "HF_TOKEN", "DB_PASSWORD"])
def test_a_secret_is_kept_out_of_the_script(tmp_path: Path, name: str) -> None:
    """X18."""
    assert "export it in your shell" in problems(tmp_path, env={name: "x"})[f"cluster.env.{name}"]


def test_a_variable_can_be_exported(tmp_path: Path) -> None:
    assert "no name that a script could export" in problems(tmp_path, env={"a-b": "x"})["cluster.env.a-b"]


def test_workers_and_gpus_that_differ(tmp_path: Path) -> None:
    assert "is 2, but a node has 8 GPUs" in problems(tmp_path, gpus=8, workers_per_node=2)["cluster.workers_per_node"]


def test_keys_of_another_scheduler_are_unknown(tmp_path: Path) -> None:
    assert set(problems(tmp_path, queue="x", image="y")) == {"cluster.queue", "cluster.image"}
    (tmp_path / "tiny.yaml").write_text(RECIPE + yaml.safe_dump({"cluster": {"partition": "a100"}}))
    with pytest.raises(InputError, match=r"cluster\.partition"):
        load_recipe(tmp_path / "tiny.yaml")


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("0", 0),
        ("90", 5_400),
        ("1:30", 90),
        ("2:00:05", 7_205),
        ("1-6", 108_000),
        ("1-6:30", 109_800),
        ("2-0:0:7", 172_807),
    ],
)
def test_times_are_read_as_sbatch_does(time: str, seconds: int) -> None:
    """The forms of sbatch's manual."""
    assert seconds_of(time) == seconds


def test_a_grace_is_under_the_time_limit(tmp_path: Path) -> None:
    found = problems(tmp_path, time="00:30:00", grace={"minutes": 30})
    assert "of 30 minutes is not under `time`, 00:30:00" in found["cluster.grace"]
    assert load(tmp_path, time="00:30:01", grace={"minutes": 30}).grace.minutes == 30
    assert load(tmp_path, time="0", grace={"minutes": 30}).time == "0", "no limit at all"


def test_all_problems_of_a_profile_are_told_at_once(tmp_path: Path) -> None:
    """Rules, too, where another setting is none."""
    found = problems(tmp_path, gpu=8, sbatch={"nodes": 3})
    assert set(found) == {"cluster.gpu", "cluster.sbatch.nodes"}


def test_problems_of_a_file_name_it(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    (tmp_path / "big.yaml").write_text("scheduler: slurm\ntime: 0:01\n")
    (tmp_path / "pods.yaml").write_text("scheduler: kubernetes\nimage: x:1\n")
    where = {}
    for name in ("big", "pods"):
        with pytest.raises(InputError) as refused:
            load_recipe(tmp_path / "tiny.yaml", cluster=str(tmp_path / f"{name}.yaml"))
        (problem,) = refused.value.problems
        where[problem.key] = problem.where
    assert where == {"cluster.grace": str(tmp_path / "big.yaml"), "cluster.volumes": str(tmp_path / "pods.yaml")}
