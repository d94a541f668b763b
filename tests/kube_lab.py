"""A cluster to test against: the stand-in, or the one that DLRMX_TEST_KUBECONFIG names."""

import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from dlrmx.launch.place import free_port
from dlrmx.recipe.profiles import KubernetesProfile
from kube_schema import Schema, read_crd


@cache
def volcano_schema() -> Schema | None:
    """Volcano's CRD of Jobs where it is found: DLRMX_VOLCANO_CRD, or k8s/ in the shared test material."""
    shared = Path(os.environ.get("DLRMX_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    path = Path(os.environ.get("DLRMX_VOLCANO_CRD", shared / "k8s" / "volcano-job-crd.yaml"))
    return read_crd(path) if path.is_file() else None


def pod_profile(root: Path, **changes: Any) -> KubernetesProfile:
    """Of two pods that run on this machine, with their root in a volume."""
    profile = {
        "scheduler": "kubernetes",
        "image": "dlrmx:test",
        "nodes": 2,
        "workers_per_node": 1,
        "root": str(root),
        "python": sys.executable,
        "port": free_port(),
        "volumes": {"runs": {"host_path": str(root), "mount": str(root)}},
    }
    return KubernetesProfile.model_validate({**profile, **changes})
