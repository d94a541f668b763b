"""The nodes that node 0 leads: they join it over TCP, are told what to do, and tell how it went.

they say      hello{token, node, host, dlrmx}   prepared{}   refused{cause, message, exit_code}
              event{line}   stop{by}   ended{}
they hear     welcome{} or refused{reason, final}   attempt{number, claimed}   go{port, recipe, plan, job}
              event{line}   stop{by}   end{}   over{exit_code}
"""

import json
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dlrmx import __version__
from dlrmx.launch.link import Link, Message
from dlrmx.launch.place import PORTS, Place
from dlrmx.runs.diagnosis import LOST
from dlrmx.runs.events import append_event, read_events
from dlrmx.runs.layout import AttemptPaths
from dlrmx.runs.lines import append_line

# Images are pulled and folders mounted on each node at its own pace.
JOIN_S = 900.0
POLL_S = 0.1
# Once all are told to end: their workers' last words, the kill, the agent's last words.
ENDING_S = 30.0
GOODBYE_S = 10.0


@dataclass
class Crew:
    """All nodes but node 0. Empty for a job of one node, and then nothing here waits.

    lost: why a node's process is not there any more; it does not come back before the job is started again.
    """

    place: Place
    token: str
    lost: dict[int, str] = field(default_factory=dict)
    _links: dict[int, Link] = field(default_factory=dict)
    _hosts: dict[int, str] = field(default_factory=dict)
    _strangers: list[tuple[float, Link]] = field(default_factory=list)
    _server: socket.socket | None = None
    _told: set[int] = field(default_factory=set)
    _prepared: set[int] = field(default_factory=set)
    _refused: list[Message] = field(default_factory=list)
    _ended: set[int] = field(default_factory=set)
    _said: bool = False

    @property
    def complete(self) -> bool:
        """Whether all nodes have joined and are still there."""
        return len(self._links) + 1 == self.place.nodes and not self.lost

    @property
    def address(self) -> str | None:
        """This machine's address as the others reach it."""
        return next((link.own_address for link in self._links.values() if link.lost is None), None)

    def gather(self, stop_asked: Callable[[], bool], seconds: float = JOIN_S) -> None:
        """Wait until all have joined, or it takes too long: then the missing ones are lost."""
        deadline = time.monotonic() + seconds
        while not self.complete and not self.lost and not self._refused and not stop_asked():
            self._server = self._server or _listen(self.place.port)
            self._let_in()
            if time.monotonic() > deadline:
                missing = set(range(1, self.place.nodes)) - set(self._links)
                self.lost = dict.fromkeys(sorted(missing), f"did not join within {seconds:g} s: see launch.log")
            time.sleep(POLL_S)

    def begin(self, attempt: AttemptPaths) -> None:
        """Let all take part in an attempt."""
        self._prepared, self._ended, self._refused, self._said = set(), set(), [], False
        claimed = read_events(attempt, "claimed")[:1]
        self.tell("attempt", number=attempt.number, claimed=claimed)

    def go(self, attempt: AttemptPaths, port: int) -> None:
        """Have all start their workers, whose agents meet at this port of node 0."""
        job = json.loads(attempt.job.read_text())
        self.tell("go", port=port, recipe=attempt.recipe.read_text(), plan=attempt.plan.read_text(), job=job)

    def tell(self, kind: str, **fields: Any) -> None:
        """Send all a message."""
        for link in self._links.values():
            link.tell(kind, **fields)

    def pump(self, attempt: AttemptPaths, stop: Callable[[str], None]) -> None:
        """Take over what the others said meanwhile, and tell them how the attempt ended."""
        for node, link in self._links.items():
            for message in link.hear():
                self._take(node, message, attempt, stop)
            if link.lost is not None:
                self.lost.setdefault(node, link.lost)
        self._tell_lost(attempt)
        if self._links and not self._said and (said := read_events(attempt, "finished", "stopped")):
            self._said = True
            self.tell("event", line=said[-1])

    def all_prepared(self) -> bool:
        """Whether every node has what it needs, or it will never come."""
        return len(self._prepared) + 1 == self.place.nodes or bool(self._refused or self.lost)

    @property
    def refusal(self) -> Message | None:
        """What the first node said that could not take part."""
        return self._refused[0] if self._refused else None

    @property
    def any_over(self) -> bool:
        """Whether a node's part of the attempt has ended, or the node is gone."""
        return bool(self._ended or self.lost or self._refused)

    def end(self, attempt: AttemptPaths, stop: Callable[[str], None]) -> None:
        """End the attempt on all nodes; back when it has, or they are beyond it."""
        if not read_events(attempt, "finished", "stopped"):  # else they end by themselves
            self.tell("end")
        deadline = time.monotonic() + ENDING_S
        while len(self._ended | set(self.lost)) < len(self._links) and time.monotonic() < deadline:
            self.pump(attempt, stop)
            time.sleep(POLL_S)
        for node in set(self._links) - self._ended - set(self.lost):
            self.lost[node] = f"did not end its workers within {ENDING_S:g} s"

    def dismiss(self, exit_code: int) -> None:
        """The job is over, also for those that come only now."""
        with suppress(OSError):  # where it could not listen before, nobody can come
            self.gather(lambda: False, GOODBYE_S)
        self.tell("over", exit_code=exit_code)
        for link in [*self._links.values(), *(link for _, link in self._strangers)]:
            link.close()
        if self._server is not None:
            self._server.close()

    def _take(self, node: int, message: Message, attempt: AttemptPaths, stop: Callable[[str], None]) -> None:
        match message["kind"]:
            case "event":
                append_line(attempt.events, message["line"])
            case "stop":
                stop(f"{message['by']} on {self._hosts[node]}")
            case "prepared":
                self._prepared.add(node)
            case "refused":
                why = {name: message[name] for name in ("cause", "message", "exit_code")}
                self._refused.append({**why, "host": self._hosts[node]})
            case "ended":
                self._ended.add(node)

    def _tell_lost(self, attempt: AttemptPaths) -> None:
        """Write down who was lost, once."""
        for node in sorted(set(self.lost) - self._told):
            self._told.add(node)
            host = self._hosts.get(node, f"node {node}")
            message = f"node {node} of {self.place.nodes} was lost: {self.lost[node]}"
            append_event(attempt, "failed", rank=None, step=None, cause=LOST, message=message, primary=True, host=host)

    def _let_in(self) -> None:
        """Take in who has come; strangers are sent away."""
        assert self._server is not None
        while select.select([self._server], [], [], 0)[0]:
            with suppress(OSError):
                self._strangers.append((time.monotonic(), Link(self._server.accept()[0])))
        for came, link in list(self._strangers):
            for message in link.hear()[:1]:
                self._strangers.remove((came, link))
                self._greet(link, message)
        self._strangers = [(came, link) for came, link in self._strangers if link.lost is None]  # scans of ports

    def _greet(self, link: Link, hello: Message) -> None:
        if hello["kind"] != "hello" or hello.get("token") != self.token:
            link.tell("refused", reason="this is another job", final=False)
            link.close()
        elif hello["dlrmx"] != __version__:
            reason = f"node 0 runs dlrmx {__version__}, this is {hello['dlrmx']}"
            link.tell("refused", reason=reason, final=True)
            self._refused.append({"cause": "InputError", "message": reason, "exit_code": 2, "host": hello["host"]})
            link.close()
        else:
            self._links[hello["node"]], self._hosts[hello["node"]] = link, hello["host"]
            link.tell("welcome")


def _listen(port: int) -> socket.socket:
    """A server at `port`, or at the next that is free. OSError where none of PORTS is."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    for candidate in range(port, port + PORTS):
        with suppress(OSError):
            return socket.create_server(("", candidate), family=family, dualstack_ipv6=both)
    raise OSError(f"node 0 can listen on none of the ports {port} to {port + PORTS - 1}")
