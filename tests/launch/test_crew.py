"""Node 0 and those who knock: its own nodes, other jobs' nodes, other versions, noise."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from dlrmx import __version__
from dlrmx.errors import ClusterError, InputError
from dlrmx.launch import member
from dlrmx.launch.agent import agent_env
from dlrmx.launch.crew import Crew
from dlrmx.launch.link import Link
from dlrmx.launch.member import join
from dlrmx.launch.place import PORTS, Place, free_port
from dlrmx.runs.claim import claim_attempt, create_run


@pytest.fixture
def place() -> Place:
    return Place(0, 2, "localhost", free_port())


@pytest.fixture
def gathering(place: Place) -> Iterator[Crew]:
    """A crew that waits for node 1 in the background."""
    crew = Crew(place, "ours")
    over = threading.Event()
    waiting = threading.Thread(target=crew.gather, args=(over.is_set, 30))
    waiting.start()
    yield crew
    over.set()
    waiting.join()
    crew.dismiss(0)


def other(place: Place) -> Place:
    return Place(1, place.nodes, place.host, place.port)


def never() -> bool:
    return False


def test_its_own_node_is_let_in(gathering: Crew, place: Place) -> None:
    link = join(other(place), "ours", stop_asked=never, seconds=240)
    wait_until(lambda: gathering.complete)
    assert gathering.address in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    link.close()


def test_another_job_is_sent_on(gathering: Crew, place: Place) -> None:
    wait_until(lambda: _answers(place))
    with pytest.raises(ClusterError, match="did not find node 0 at localhost.*: this is another job"):
        join(other(place), "another", stop_asked=never, seconds=0)
    assert not gathering.complete


def test_another_version_is_refused_for_good(gathering: Crew, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "__version__", "0.0.1")
    with pytest.raises(InputError, match=f"node 0 runs dlrmx {__version__}, this is 0.0.1"):
        join(other(place), "ours", stop_asked=never, seconds=240)
    wait_until(lambda: gathering.refusal is not None)
    assert gathering.refusal
    assert gathering.refusal["exit_code"] == 2


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\n", b"[]\n", b'{"kind": 3}\n', b""])
def test_noise_is_no_node(gathering: Crew, place: Place, noise: bytes) -> None:
    wait_until(lambda: _answers(place))
    with socket.create_connection((place.host, place.port)) as stranger:
        stranger.sendall(noise)
    join(other(place), "ours", stop_asked=never, seconds=240).close()


def test_a_taken_port_gives_way_to_the_next(place: Place) -> None:
    with socket.create_server(("", place.port)):
        crew = Crew(place, "ours")
        waiting = threading.Thread(target=crew.gather, args=(never, 30))
        waiting.start()
        # who listens there never says a word
        link = join(other(place), "ours", stop_asked=never, seconds=240)
        waiting.join()
    assert crew.complete
    link.close()
    crew.dismiss(0)


def test_where_every_port_is_taken_the_job_ends_in_order(place: Place) -> None:
    with ExitStack() as taken:
        for port in range(place.port, place.port + PORTS):
            with suppress(OSError):  # somebody else's
                taken.enter_context(socket.create_server(("", port)))
        crew = Crew(place, "ours")
        with pytest.raises(OSError, match=f"none of the ports {place.port} to {place.port + PORTS - 1}"):
            crew.gather(never, 30)
        crew.dismiss(1)


def test_who_only_looks_whether_somebody_listens_is_forgotten(gathering: Crew, place: Place) -> None:
    wait_until(lambda: _answers(place))
    for _ in range(20):
        socket.create_connection((place.host, place.port)).close()
    wait_until(lambda: not gathering._strangers)
    join(other(place), "ours", stop_asked=never, seconds=240).close()


def test_who_does_not_come_is_lost(place: Place, tmp_path: Path) -> None:
    crew = Crew(place, "ours")
    crew.gather(never, 0.3)
    assert crew.lost == {1: "did not join within 0.3 s: see launch.log"}
    attempt = claim_attempt(create_run(tmp_path, "r", None, "f"))
    crew.pump(attempt, lambda by: None)
    crew.pump(attempt, lambda by: None)
    text = attempt.events.read_text()
    assert text.count("node 1 of 2 was lost: did not join") == 1
    crew.dismiss(75)


def test_a_node_that_comes_when_all_is_over_is_told(place: Place) -> None:
    crew = Crew(place, "ours")
    leaving = threading.Thread(target=crew.dismiss, args=(2,))
    leaving.start()
    link = join(other(place), "ours", stop_asked=never, seconds=240)
    heard = link.wait(240)
    leaving.join()
    assert heard == [{"kind": "over", "exit_code": 2}]
    link.close()


def test_one_node_waits_for_nobody() -> None:
    crew = Crew(Place(), "ours")
    began = time.monotonic()
    crew.gather(never)
    crew.dismiss(0)
    assert time.monotonic() - began < 1
    assert (crew.complete, crew.address) == (True, None)


def test_messages_cut_anywhere_arrive_whole() -> None:
    here, there = socket.socketpair()
    link = Link.__new__(Link)
    link.socket, link.lost, link._buffer = there, None, bytearray()
    for byte in b'{"kind": "a"}\n{"kind":':
        here.send(bytes([byte]))
    assert [message["kind"] for message in link.hear()] == ["a"]
    here.sendall(b' "b"}\n')
    here.close()
    assert [message["kind"] for message in link.hear()] == ["b"]
    link.hear()
    link.tell("c")
    assert link.lost == "the connection was closed"


def test_gloo_takes_the_interface_by_which_the_nodes_met() -> None:
    """A host whose name resolves to 127.0.1.1 would have gloo offer that to the others."""
    assert agent_env({}, {}, 1, "127.0.0.1")["GLOO_SOCKET_IFNAME"] == "lo"
    assert agent_env({"GLOO_SOCKET_IFNAME": "ib0"}, {}, 1, "127.0.0.1")["GLOO_SOCKET_IFNAME"] == "ib0"
    assert "GLOO_SOCKET_IFNAME" not in agent_env({}, {}, 1)


def _answers(place: Place) -> bool:
    try:
        socket.create_connection((place.host, place.port), 1).close()
    except OSError:
        return False
    return True


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)
