"""The torchx AppDef of a job: environment plus one command, the same on every scheduler."""

import sys

from torchx.specs import AppDef, Resource, Role

from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.recipe.profiles import Profile

ROLE = "node"  # [a-z0-9] only: Volcano makes shell variables of it


def app_def(spec: JobSpec, profile: Profile) -> AppDef:
    """One replica per node, each running the node process. Pure."""
    env = {
        **profile.env,
        # The user's folder must not shadow modules, and what a dying process printed must not be lost.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        JOB_VARIABLE: spec.to_variable(),
    }
    role = Role(
        name=ROLE,
        image="",
        entrypoint=profile.python or sys.executable,
        args=["-m", "dlrmx.launch.node"],
        env=env,
        num_replicas=profile.nodes,
        resource=Resource(cpu=-1, gpu=-1, memMB=-1),
    )
    return AppDef(name=spec.run, roles=[role])
