"""A connection between two node processes: JSON lines over TCP, read without waiting.

No thread tends it. The kernel notices a machine that is gone or cut off, and says so within SILENCE_S.
"""

import json
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]

# A dead machine sends nothing, not even that it is dead.
SILENCE_S = 25
PROBE_S = 5
CHUNK = 65_536
# A job's plan is far smaller; more comes from somebody else.
MOST_BYTES = 256 << 20


@dataclass(eq=False)
class Link:
    """One end. lost: why nothing comes any more, None while it stands. Nothing here raises."""

    socket: socket.socket
    lost: str | None = None
    _buffer: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        options = (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENCE_S // PROBE_S - 1),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000),
        )
        for level, name, value in options:
            self.socket.setsockopt(level, name, value)
        self.socket.settimeout(SILENCE_S)

    @property
    def own_address(self) -> str:
        address: str = self.socket.getsockname()[0]
        return address

    def tell(self, kind: str, **fields: Any) -> None:
        """Send a message; one that cannot be sent is dropped, and `lost` says why."""
        if self.lost is not None:
            return
        try:
            self.socket.sendall(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        except OSError as error:
            self._lose(str(error))

    def hear(self) -> list[Message]:
        """All messages that have come since the last call."""
        while self.lost is None and select.select([self.socket], [], [], 0)[0]:
            try:
                chunk = self.socket.recv(CHUNK)
            except OSError as error:
                self._lose(str(error))
                break
            self._buffer += chunk
            if not chunk or len(self._buffer) > MOST_BYTES:
                self._lose("the connection was closed" if not chunk else "it sends no messages of ours")
        return self._messages()

    def wait(self, seconds: float) -> list[Message]:
        """As `hear`, but wait so long for something to come."""
        deadline = time.monotonic() + seconds
        while not (messages := self.hear()) and self.lost is None and time.monotonic() < deadline:
            self.wait_for_input(deadline - time.monotonic())
        return messages

    def wait_for_input(self, seconds: float) -> None:
        """Return when there is something to hear, or after so long."""
        if self.lost is None:
            select.select([self.socket], [], [], max(0.0, seconds))

    def close(self) -> None:
        self.lost = self.lost or "closed"
        self.socket.close()

    def _messages(self) -> list[Message]:
        *lines, rest = bytes(self._buffer).split(b"\n") if b"\n" in self._buffer else [bytes(self._buffer)]
        if lines:
            self._buffer = bytearray(rest)
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            messages = [None]
        if not all(isinstance(message, dict) and isinstance(message.get("kind"), str) for message in messages):
            self._lose("it sends no messages of ours")
            return []
        return messages

    def _lose(self, why: str) -> None:
        self.lost = why
        self.socket.close()
