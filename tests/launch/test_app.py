import copy
import sys

from dlrmx.launch.app import app_def
from dlrmx.launch.job import JobSpec
from dlrmx.recipe.profiles import LocalProfile

SPEC = JobSpec(dlrmx="0.1.0", run="ctr-1", root="/runs", recipe="", profile={})


def test_a_job_is_environment_and_one_command() -> None:
    profile = LocalProfile(env={"NCCL_IB_HCA": "mlx5_0,mlx5_1"})
    before = copy.deepcopy(profile)
    app = app_def(SPEC, profile)
    assert app.name == "ctr-1"
    (role,) = app.roles
    assert role.name.isalnum()
    assert (role.entrypoint, role.args) == (sys.executable, ["-m", "dlrmx.launch.node"])
    assert role.num_replicas == 1
    assert role.env["NCCL_IB_HCA"] == "mlx5_0,mlx5_1"
    assert JobSpec.from_variable(role.env["DLRMX_JOB"]) == SPEC
    role.env["NCCL_IB_HCA"] = "changed"
    assert profile == before


def test_the_profile_names_the_interpreter() -> None:
    assert app_def(SPEC, LocalProfile(python="/sw/python")).roles[0].entrypoint == "/sw/python"
