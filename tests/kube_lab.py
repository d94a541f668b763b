"""A cluster to test against: the stand-in, or the one that DLRMX_TEST_KUBECONFIG names."""

import os
from functools import cache
from pathlib import Path

from kube_schema import Schema, read_crd


@cache
def volcano_schema() -> Schema | None:
    """Volcano's CRD of Jobs where it is found: DLRMX_VOLCANO_CRD, or k8s/ in the shared test material."""
    shared = Path(os.environ.get("DLRMX_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    path = Path(os.environ.get("DLRMX_VOLCANO_CRD", shared / "k8s" / "volcano-job-crd.yaml"))
    return read_crd(path) if path.is_file() else None
