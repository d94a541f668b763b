"""What doctor makes of packages, kernels, networks and disks that are not as they should be."""

import json
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from dlrmx.launch.doctor import (
    Finding,
    meet,
    name_finding,
    network,
    operators,
    read_reports,
    report,
    root_check,
    versions,
)
from dlrmx.launch.place import Place, free_port

GOOD = {"torch": "2.13.0+cpu", "fbgemm-gpu-cpu": "1.8.0", "torchx-nightly": "2026.10.26"}


def found(installed: dict[str, str]) -> dict[str, Finding]:
    return {finding.what: finding for finding in versions(installed.get)}


def test_packages_that_pair() -> None:
    assert {finding.verdict for finding in found(GOOD).values()} == {"ok"}


@pytest.mark.parametrize(
    ("change", "said", "hint"),
    [
        ({"torch": "2.12.1+cpu"}, "torch 2.12.1+cpu, fbgemm-gpu-cpu 1.8.0", "torch 2.13 with fbgemm 1.8"),
        ({"fbgemm-gpu-cpu": "1.7.0"}, "fbgemm-gpu-cpu 1.7.0", "torch 2.13 with fbgemm 1.8"),
        ({"fbgemm-gpu": "1.8.0"}, "fbgemm-gpu 1.8.0, fbgemm-gpu-cpu 1.8.0", "they overwrite each other"),
        ({"torch": ""}, "torch is not installed", "pip install 'dlrmx[cpu]'"),
        ({"fbgemm-gpu-cpu": ""}, "no fbgemm", "pip install 'dlrmx[cpu]'"),
        ({"torch": "2.13.0+cu130"}, "torch 2.13.0+cu130", "has no CUDA kernels"),
        ({"fbgemm-gpu-cpu": "", "fbgemm-gpu": "1.8.0"}, "fbgemm-gpu 1.8.0", "take dlrmx[cpu]"),
    ],
)
def test_packages_that_do_not_pair(change: dict[str, str], said: str, hint: str) -> None:
    installed = {name: text for name, text in {**GOOD, **change}.items() if text}
    finding = found(installed)["torch and fbgemm"]
    assert finding.verdict == "failed"
    assert said in finding.said
    assert hint in finding.hint


def test_a_torchx_of_another_package_is_seen() -> None:
    assert found({**GOOD, "torchx": "0.7.0"})["torchx"].verdict == "failed"
    assert "0.7.0 of another package" in found({**GOOD, "torchx": "0.7.0"})["torchx"].said


def look_at(code: str) -> list[Finding]:
    """What is made of a self-test that runs this code."""
    return list(operators(dict(os.environ), ("-c", code)))


def test_kernels_that_count_wrong_crash_or_are_not_there() -> None:
    wrong = {"devices": {"cpu": "its update gives [1.0], and [2.0] is right"}, "gloo": "", "nccl": None}
    kernels, exchange = look_at(f"print({json.dumps(json.dumps(wrong))})")
    assert (kernels.verdict, exchange.verdict) == ("failed", "ok")
    assert "[2.0] is right" in kernels.said
    (crash,) = look_at("import os; os.abort()")
    assert (crash.verdict, "exit code -6" in crash.said) == ("failed", True)
    (missing,) = look_at("raise ImportError('undefined symbol: _ZN3c10')")
    assert "undefined symbol: _ZN3c10" in missing.said
    (silent,) = look_at("pass")
    assert silent.verdict == "failed"


def test_gloo_that_cannot_start_is_told() -> None:
    words = {"devices": {"cpu": ""}, "gloo": "no address of vm", "nccl": None}
    _, exchange = look_at(f"print({json.dumps(json.dumps(words))})")
    assert (exchange.verdict, "/etc/hosts" in exchange.hint) == ("failed", True)


def test_a_host_that_calls_itself_127_is_told_where_there_are_others() -> None:
    alone = name_finding("vm", "127.0.1.1", "lo", nodes=1)
    among = name_finding("vm", "127.0.1.1", "lo", nodes=2)
    good = name_finding("vm", "10.0.0.5", "eth0", nodes=2)
    assert (alone.verdict, among.verdict, good.verdict) == ("ok", "note", "ok")
    assert "two such hosts never find each other" in among.hint
    assert good.said == "vm is 10.0.0.5, interface eth0"


def test_an_interface_that_is_not_there_is_told() -> None:
    findings = {finding.what: finding for finding in network({"GLOO_SOCKET_IFNAME": "nope0"}, nodes=1)}
    assert findings["GLOO_SOCKET_IFNAME"].verdict == "failed"
    findings = {finding.what: finding for finding in network({"NCCL_SOCKET_IFNAME": "=lo"}, nodes=1)}
    assert findings["NCCL_SOCKET_IFNAME"].verdict == "ok"


def test_a_root_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    assert root_check(tmp_path / "a").verdict in ("ok", "note")
    assert list(tmp_path.iterdir()) == []
    assert root_check(tmp_path).verdict in ("ok", "note")


def test_a_root_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    finding = root_check(tmp_path / "file" / "runs")
    assert finding.verdict == "failed"
    assert "Not a directory" in finding.said


def test_reports_are_found_among_other_words_and_labels() -> None:
    lines = report(1, [Finding("a", "ok", "x" * 5000), Finding("b", "failed", "y", "z")])
    labelled = "\n".join(f"1: {line}" for line in lines.splitlines())
    text = f"module load\n{labelled}\n0: " + '{"dlrmx_doctor": {"node": 0, torn\nbye'
    assert max(map(len, labelled.splitlines())) < 1000  # srun cuts at 1,024
    reports = read_reports(text)
    assert list(reports) == [1]
    host, finding = reports[1][1]
    assert (host, finding) == (socket.gethostname(), Finding("b", "failed", "y", "z"))


def test_nodes_meet_and_say_by_which_interface() -> None:
    port, said = free_port(), {}

    def play(node: int) -> None:
        said[node] = meet(Place(node, 3, "localhost", port), "token")

    threads = [threading.Thread(target=play, args=(node,)) for node in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert [said[node].verdict for node in range(3)] == ["ok", "ok", "ok"], said
    assert said[0].said.startswith("all 3 have come; by ")
    assert "interface lo" in said[2].said


def test_the_interpreter_of_the_profile_is_the_one_that_is_looked_at() -> None:
    assert sys.executable in found(GOOD)["dlrmx"].said
