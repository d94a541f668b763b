"""Asks a cluster whether jobs of ours could run there: its scheduler first, then every node, by a job of its own."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrmx.errors import DlrmxError
from dlrmx.launch.app import app_def
from dlrmx.launch.doctor import Finding, read_reports
from dlrmx.launch.errand import errand_spec, run_errand
from dlrmx.launch.job import JOB_VARIABLE, JobSpec
from dlrmx.recipe.profiles import KubernetesProfile, Profile, SlurmProfile
from dlrmx.runs.layout import RunPaths

MODULE = "dlrmx.launch.doctor"


@dataclass(frozen=True)
class Examined:
    """What one node said, or (node None) what this machine found of the cluster."""

    node: int | None
    host: str
    findings: tuple[Finding, ...]


def examine_cluster(profile: Profile, say: Callable[[str], None]) -> list[Examined]:
    """All findings. `say` hears why the job waits; Ctrl-C cancels it. Raises ClusterError where none can be made."""
    here = Examined(None, os.uname().nodename, tuple(scheduler_findings(profile)))
    if any(finding.verdict == "failed" for finding in here.findings):
        return [here]
    spec, words = errand_spec("doctor", profile), ("-m", MODULE)
    text = _run_here(spec, profile) if profile.scheduler == "local" else run_errand(spec, profile, words, say)
    reports = read_reports(text)
    nodes = [_examined(reports.get(node, []), node, text) for node in range(profile.nodes)]
    return [*([here] if here.findings else []), *nodes]


def scheduler_findings(profile: Profile) -> Iterator[Finding]:
    """Whether the scheduler answers, and would take a job of this profile."""
    try:
        if isinstance(profile, SlurmProfile):
            yield from _slurm(profile)
        elif isinstance(profile, KubernetesProfile):
            yield from _kubernetes(profile)
    except DlrmxError as error:
        what, _, hint = str(error).partition("\n")
        yield Finding(profile.scheduler, "failed", what, hint.strip())


def _slurm(profile: SlurmProfile) -> Iterator[Finding]:
    from dlrmx.launch.slurm_commands import slurm
    from dlrmx.launch.slurm_script import options

    partitions = slurm("sinfo", "-h", "-o", "%P %a %D").split("\n")
    yield Finding("slurm", "ok", "; ".join(line for line in partitions if line))
    lines = [f"#SBATCH {option}" for option in options(RunPaths(Path(profile.root) / "doctor"), profile)]
    slurm("sbatch", "--test-only", stdin="\n".join(["#!/bin/bash", *lines, "true", ""]))
    yield Finding("sbatch", "ok", "would take a job of this profile")


def _kubernetes(profile: KubernetesProfile) -> Iterator[Finding]:
    from dlrmx.launch.kube_api import connect
    from dlrmx.launch.kubernetes import jobs_path

    api = connect(profile.context, profile.namespace)
    api.get(jobs_path(profile.kind, api), limit="1")
    yield Finding("kubernetes", "ok", f"answers, has {profile.kind} jobs; namespace {api.namespace}")
    for group, resource, verb in RIGHTS[profile.kind]:
        yield _right(api, group, resource, verb)


# docs/kubernetes.md has the Role that grants them.
_ALL_KINDS = (("", "pods", "list"), ("", "pods/log", "get"))
RIGHTS = {
    "volcano": (
        *(("batch.volcano.sh", "jobs", verb) for verb in ("create", "get", "list", "delete")),
        ("bus.volcano.sh", "commands", "create"),
        *_ALL_KINDS,
    ),
    "job": (
        *(("batch", "jobs", verb) for verb in ("create", "get", "list", "delete", "patch")),
        ("", "services", "create"),
        *_ALL_KINDS,
    ),
}


def _right(api: Any, group: str, resource: str, verb: str) -> Finding:
    """Whether we may, as the API server itself says."""
    name, _, sub = resource.partition("/")
    wanted = {"namespace": api.namespace, "group": group, "resource": name, "subresource": sub, "verb": verb}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    said = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).get("status") or {}
    what = f"right to {verb} {resource}"
    if said.get("allowed"):
        return Finding(what, "ok", "granted")
    return Finding(what, "failed", said.get("reason") or "not granted", "docs/kubernetes.md has the Role to ask for")


def _run_here(spec: JobSpec, profile: Profile) -> str:
    app = app_def(spec, profile).roles[0]
    env = {**os.environ, **app.env, JOB_VARIABLE: spec.to_variable()}
    done = subprocess.run(
        [os.path.expanduser(app.entrypoint), "-m", MODULE],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return f"{done.stdout}\n{done.stderr}"


def _examined(report: list[tuple[str, Finding]], node: int, text: str) -> Examined:
    if not report:
        last = "; ".join(line for line in text.strip().splitlines()[-3:] if "dlrmx_doctor" not in line)
        hint = "python and setup in the cluster profile; the nodes need the dlrmx of this machine"
        return Examined(node, "?", (Finding("node", "failed", f"said nothing: {last or 'not a word'}", hint),))
    return Examined(node, report[0][0], tuple(finding for _, finding in report))
