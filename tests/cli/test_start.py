"""From a recipe to a job: what is refused before anything is prepared."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dlrmx.errors import ClusterError
from dlrmx.launch.job import JobSpec
from dlrmx.runs.claim import note_copy
from dlrmx_cli import other_files, start
from dlrmx_cli.live import open_view
from scripted import Dlrmx, MakeRun
from small_checkpoint import damage, save_checkpoint


def test_evaluate_and_init_from_refuse_a_damaged_checkpoint(dlrmx: Dlrmx, make_run: MakeRun, recipe_file: Path) -> None:
    path = save_checkpoint(make_run("done"), 20)
    damage(path)
    for words in (("evaluate", path), ("train", recipe_file, "-s", f"train.init_from={path}")):
        done = dlrmx(*words)
        assert done.exit_code == 2
        assert "is damaged; nothing was started" in done.stderr
    assert not list(Path("runs").glob("*-2")) + list(Path("runs").glob("*evaluation*"))


def test_a_split_without_rows_is_not_evaluated(dlrmx: Dlrmx, make_run: MakeRun) -> None:
    run = make_run("done")
    save_checkpoint(run, 20)
    path = run.attempt(1).recipe
    raw = yaml.safe_load(path.read_text())
    raw["data"]["split"] = {"validation": 0.1, "test": 0}
    raw["train"]["evaluate"] = {"at_end": None}
    path.write_text(yaml.safe_dump(raw))
    done = dlrmx("evaluate", run.name)
    assert done.exit_code == 2
    assert "gives the split test no rows: data.split.test is 0" in done.stderr


PODS = """
cluster: {scheduler: kubernetes, image: x, root: /runs, root_here: HERE, volumes: {runs: {claim: runs, mount: /runs}}}
"""


def test_pods_are_told_of_a_checkpoint_by_the_path_that_they_see(
    dlrmx: Dlrmx, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("done")
    with run.attempt(1).recipe.open("a") as recipe:
        recipe.write(PODS.replace("HERE", str(tmp_path / "runs")))
    save_checkpoint(run, 20)
    asked: list[JobSpec] = []

    def refuse(spec: JobSpec, *_: Any, **__: Any) -> None:
        asked.append(spec)
        raise ClusterError("no")

    monkeypatch.setattr("dlrmx.launch.submit.submit", refuse)
    assert dlrmx("evaluate", run.name).exit_code == 3
    (spec,) = asked
    assert spec.evaluate == {"checkpoint": f"/runs/{run.name}/checkpoints/step-00000020", "split": "test"}
    assert spec.root == "/runs"


def test_a_run_whose_checkpoints_only_its_pods_see_cannot_be_evaluated_from_here(
    dlrmx: Dlrmx, make_run: MakeRun
) -> None:
    run = make_run("done")
    note_copy(run, live=False)
    done = dlrmx("evaluate", run.name)
    assert done.exit_code == 2
    assert f"the checkpoints of run {run.name} are where only its pods see them" in done.stderr
    assert "root_here" in done.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("cluster.python=/no/such/python", "cluster.python: /no/such/python is no program"),
        ("sharding.plan=gone.json", "cannot read the plan"),
        ("cluster.memory_gib=1e-6", "memory: "),
    ],
)
def test_what_no_data_could_mend_is_refused_before_they_are_prepared(
    setting: str, message: str, dlrmx: Dlrmx, recipe_file: Path
) -> None:
    done = dlrmx("train", recipe_file, "-s", setting)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("name", "message"), [("a b", "'a b' cannot name a run"), ("taken", "there is a run taken in")]
)
def test_a_name_that_no_run_can_have_is_refused_before_data_are_prepared(
    name: str, message: str, dlrmx: Dlrmx, recipe_file: Path, make_run: MakeRun
) -> None:
    make_run(name="taken")
    for words in ([], ["--dry-run"]):
        done = dlrmx("train", recipe_file, "--name", name, *words)
        assert done.exit_code == 2
        assert message in done.stderr
    assert [path.name for path in Path("runs").iterdir()] == ["taken"]


def test_weights_of_no_run_are_told_with_the_recipes_line_and_key(dlrmx: Dlrmx, recipe_file: Path) -> None:
    recipe_file.write_text(recipe_file.read_text().replace("train: {", "train: {init_from: gone, "))
    done = dlrmx("train", recipe_file)
    assert done.exit_code == 2
    assert f'{recipe_file}:12: train.init_from: "gone" is no run and no checkpoint' in done.stderr


def test_a_python_that_cannot_train_says_so_before_it_prepares(
    dlrmx: Dlrmx, recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = dlrmx("train", recipe_file)
    assert done.exit_code == 2
    assert "training needs torch and fbgemm_gpu" in done.stderr
    assert "pip install 'dlrmx[cpu]'" in done.stderr
    assert not Path("runs").exists()


def test_what_can_only_be_planned_for_is_not_run_on(dlrmx: Dlrmx, recipe_file: Path, tmp_path: Path) -> None:
    for words in ([], ["--dry-run"]):
        done = dlrmx("train", recipe_file, "--cluster", "zionex", *words)
        assert done.exit_code == 2
        assert "it can be planned for, not run on" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicks.yaml"]


def test_a_clusters_job_prepares_on_its_nodes_and_not_where_it_is_submitted(recipe_file: Path) -> None:
    loaded = start.load(str(recipe_file), ["cluster={scheduler: slurm, nodes: 2, workers_per_node: 2}"])
    with open_view() as view:
        assert start.prepare_and_plan(loaded, view) is None
        assert other_files.prepare_and_plan(loaded, view, {"trained_on": "runs/prepared/0123456789ab"}) is None
    assert not Path("runs").exists()
