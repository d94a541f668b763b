"""Where a node process is in its job: told by Slurm, Volcano or Kubernetes alike."""

import subprocess

import pytest

from dlrmx.errors import InputError
from dlrmx.launch.place import Place, free_port, interface_of, place_of, token_of

MEETING = {"DLRMX_RENDEZVOUS": "n3:20096"}


def test_a_job_of_one_node_needs_no_place() -> None:
    """Whatever a shell inside of another allocation holds."""
    assert place_of({"SLURM_NODEID": "3", "SLURM_NNODES": "4"}, 1) == Place(0, 1)


@pytest.mark.parametrize("name", ["DLRMX_NODE_RANK", "SLURM_NODEID", "VC_TASK_INDEX", "JOB_COMPLETION_INDEX"])
def test_each_scheduler_numbers_its_nodes(name: str) -> None:
    assert place_of({**MEETING, name: "2"}, 4) == Place(2, 4, "n3", 20_096)


def test_our_own_number_wins() -> None:
    assert place_of({**MEETING, "DLRMX_NODE_RANK": "1", "SLURM_NODEID": "3"}, 4).node == 1


@pytest.mark.parametrize("meeting", ["", "n3", ":20096", "n3:", "n3:0", "n3:65530", "n3:x"])
def test_node_0_must_be_named(meeting: str) -> None:
    with pytest.raises(InputError, match="DLRMX_RENDEZVOUS must be host:port"):
        place_of({"DLRMX_RENDEZVOUS": meeting, "SLURM_NODEID": "0"}, 2)


@pytest.mark.parametrize("environ", [{}, {"SLURM_NODEID": "4"}, {"SLURM_NODEID": "-1"}, {"SLURM_NODEID": "x"}])
def test_a_number_that_is_none(environ: dict[str, str]) -> None:
    with pytest.raises(InputError, match="no node of 4 is"):
        place_of({**MEETING, **environ}, 4)


def test_each_start_of_each_job_has_a_token_of_its_own() -> None:
    tokens = {token_of({"DLRMX_START": start}, job) for start in ("7.0", "7.1") for job in ("a", "b")}
    assert len(tokens) == 4
    assert token_of({"DLRMX_START": "7.0", "HOME": "/x"}, "a") in tokens, "alike on all nodes"


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == interface_of("::ffff:127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None
    shown = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    assert all(interface_of(address) != "lo" for address in shown if ":" not in address)


def test_a_free_port_can_be_listened_on() -> None:
    assert 1024 < free_port() < 65_536
