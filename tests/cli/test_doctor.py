"""dlrmx doctor as it is typed; that it finds what it looks for is tested in tests/launch/test_doctor.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlrmx.launch.doctor import Finding
from dlrmx.launch.examine import Examined
from dlrmx_cli.doctor import examined_text, nodes_text
from scripted import Dlrmx


def test_this_machine_is_well(dlrmx: Dlrmx, tmp_path: Path) -> None:
    """With the real kernels, in the interpreter that the tests run in."""
    done = dlrmx("doctor", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["ok"]) == (0, True), done.stdout
    (node,) = found["examined"]
    said = {finding["what"]: finding for finding in node["findings"]}
    assert said["fbgemm operators"]["said"] == "cpu: a look-up and an update give the right numbers"
    assert {"machine", "dlrmx", "torch and fbgemm", "torchx", "exchange", "host name"} < set(said)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_ends_with_3_and_names_the_way_out(dlrmx: Dlrmx, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "broken.yaml").write_text(f"scheduler: local\npython: {python}\n")
    done = dlrmx("doctor", "--cluster", "broken")
    assert done.exit_code == 3
    assert "FAILED  node  said nothing: no such module" in done.stdout
    assert "python and setup in the cluster profile" in done.stdout


def test_a_cluster_that_cannot_be_reached_ends_with_3(
    dlrmx: Dlrmx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "big.yaml").write_text("scheduler: slurm\n")
    monkeypatch.setenv("PATH", "/nowhere")
    done = dlrmx("doctor", "--cluster", "big")
    assert done.exit_code == 3
    assert "there is no sinfo on this machine" in done.stdout


def test_the_text_has_a_line_per_finding_and_its_hint() -> None:
    findings = (Finding("root /x", "ok", "can be written"), Finding("exchange", "failed", "no route", "a way out"))
    assert examined_text(Examined(2, "n2", findings)).splitlines() == [
        "node 2: n2",
        "  ok      root /x   can be written",
        "  FAILED  exchange  no route",
        "          a way out",
    ]


def test_the_launcher_itself_imports_no_torch() -> None:
    code = "import sys, dlrmx.launch.examine, dlrmx_cli.doctor; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_of_further_nodes_what_differs_is_told() -> None:
    """Names and addresses always do, and say nothing."""

    def of(node: int, version: str) -> Examined:
        host = Finding("host name", "ok", f"n{node} is 10.0.0.{node}, interface eth0")
        by = Finding("nodes", "ok", "all 3 have come; by 10.0.0.9" if node == 0 else f"reaches node 0 by 10.0.0.{node}")
        return Examined(node, f"n{node}", (host, Finding("torch", "ok", version), by))

    first, second, third = nodes_text([of(0, "2.13"), of(1, "2.13"), of(2, "2.12")])
    assert first.splitlines()[0] == "node 0: n0"
    assert second == "node 1: n1, as the first node"
    assert third.splitlines() == ["node 2: n2, as the first node, but for", "  ok      torch  2.12"]
