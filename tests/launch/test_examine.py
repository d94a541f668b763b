"""doctor on clusters: a scheduler that answers or does not, rights that are missing, and every node by a job."""

from pathlib import Path

import pytest

from dlrmx.launch.doctor import Finding
from dlrmx.launch.examine import RIGHTS, examine_cluster, scheduler_findings
from dlrmx.recipe.profiles import SlurmProfile
from kube_lab import pod_profile, volcano_schema
from kube_nodes import running
from kube_server import VOLCANO_JOBS, Cluster, serving, write_kubeconfig

SINFO = '#!/bin/sh\necho "main* up 4"\n'


def by_name(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings}


def test_every_pod_is_examined_by_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Cluster(schema=volcano_schema()), list[str]()
    with running(cluster) as (url, _):
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        asked, *nodes = examine_cluster(pod_profile(tmp_path / "runs"), said.append)
        assert {finding.verdict for finding in asked.findings} == {"ok"}
        assert [node.node for node in nodes] == [0, 1]
        for node in nodes:
            found = by_name(node.findings)
            assert found["fbgemm operators"].verdict == "ok", node
            assert found["nodes"].verdict == "ok", node
        assert "all 2 have come" in by_name(nodes[0].findings)["nodes"].said
        assert len(cluster.list(VOLCANO_JOBS, "ads")) == 1
    assert any("running" in words for words in said)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("kind", ["volcano", "job"])
def test_each_right_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    cluster = Cluster()
    granted = {f"{verb} {resource}" + (f".{group}" if group else "") for group, resource, verb in RIGHTS[kind]}
    cluster.rights["ann"] = granted - {"get pods/log"}
    with serving(cluster) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url, token="ann")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        findings = tuple(scheduler_findings(pod_profile(tmp_path, kind=kind)))
    failed = [finding for finding in findings if finding.verdict == "failed"]
    assert [(finding.what, finding.hint) for finding in failed] == [
        ("right to get pods/log", "docs/kubernetes.md has the Role to ask for")
    ]


def test_without_volcano_nothing_is_submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(volcano=False)
    with serving(cluster) as url:
        write_kubeconfig(tmp_path / "kubeconfig", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        (asked,) = examine_cluster(pod_profile(tmp_path), lambda _: None)
    (finding,) = asked.findings
    assert (finding.verdict, "Volcano is not installed" in finding.said) == ("failed", True)
    assert "cluster.kind=job" in finding.hint


def test_slurm_is_asked_whether_it_would_take_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = 'echo "sbatch: error: invalid partition specified: lunch" >&2; exit 1'
    sbatch = f'#!/bin/sh\n[ "$1" = --test-only ] || exit 9\ngrep -q partition=lunch && {{ {refusal}; }}\nexit 0\n'
    for name, text in (("sinfo", SINFO), ("sbatch", sbatch)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    good = tuple(scheduler_findings(SlurmProfile(scheduler="slurm", root=str(tmp_path))))
    assert [(finding.what, finding.verdict) for finding in good] == [("slurm", "ok"), ("sbatch", "ok")]
    assert good[0].said == "main* up 4"
    *_, bad = scheduler_findings(SlurmProfile(scheduler="slurm", root=str(tmp_path), partition="lunch"))
    assert (bad.verdict, "invalid partition" in bad.said, "sinfo -s" in bad.hint) == ("failed", True, True)
