"""Errands on a cluster: what nodes printed comes back, and an interrupted one leaves no job behind."""

from pathlib import Path

import pytest

from dlrmx.launch.errand import errand_spec, run_errand
from kube_lab import pod_profile, volcano_schema
from kube_nodes import running
from kube_server import VOLCANO_JOBS, Cluster, write_kubeconfig


def test_what_all_nodes_print_comes_back_and_an_interrupt_takes_the_job_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, said = Cluster(schema=volcano_schema()), list[str]()
    profile = pod_profile(tmp_path / "runs")

    def interrupt(words: str) -> None:
        said.append(words)
        if "running" in words:
            raise KeyboardInterrupt

    with running(cluster) as (url, _):
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        text = run_errand(errand_spec("one", profile), profile, ("-c", "print('here', 6 * 7)"), said.append)
        assert text.splitlines() == ["here 42", "here 42"]
        with pytest.raises(KeyboardInterrupt):
            run_errand(errand_spec("two", profile), profile, ("-c", "import time; time.sleep(600)"), interrupt)
        states = {
            job["metadata"]["name"][:3]: job["status"]["state"]["phase"] for job in cluster.list(VOLCANO_JOBS, "ads")
        }
    assert states["one"] == "Completed"
    assert states["two"] in ("Aborting", "Aborted")
    assert said[-1].endswith("is taken back")
