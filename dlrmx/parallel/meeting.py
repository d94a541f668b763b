"""Finds out whether the ranks of a group can share memory, and connects each pair of them by a Unix socket.

A socket's name is of the network namespace, so that ranks meet if they are on one machine and in one such namespace:
containers that have one each are told apart as machines are.
"""

import os
import secrets
import socket
import struct
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from dlrmx.parallel.shared import Line, SharedMemory, new_memory

NAME_BYTES = 32
SOCKET_BYTES = 1 << 20
RANK, CREDENTIALS = struct.Struct("<I"), struct.Struct("3i")  # credentials: process, user, group
MEETING = timedelta(minutes=1)


def meet(group: dist.ProcessGroup, rank: int, world: int, timeout: timedelta) -> SharedMemory | str:
    """Connect all ranks of `group`, or say why they do not share memory: the same on all of them. Collective.

    They do where each can reach each other's Unix socket, which takes one machine and one network namespace.
    """
    server, name, wrong = _listen(world)
    names = torch.empty(world * NAME_BYTES, dtype=torch.uint8)
    own = torch.frombuffer(bytearray(name), dtype=torch.uint8)
    dist.all_to_all_single(names, own.repeat(world), group=group)
    connections: dict[int, socket.socket] = {}
    for peer, its_name in enumerate(names.view(world, NAME_BYTES)[:rank]):
        try:
            connections[peer] = connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.connect(its_name.numpy().tobytes())
            connection.send(RANK.pack(rank))
        except OSError as error:
            wrong = wrong or f"rank {peer} cannot be reached by rank {rank}: {error}"
    reasons: list[str] = [""] * world
    dist.all_gather_object(reasons, wrong, group=group)
    if server is not None and not any(reasons):
        _accept(server, connections, world)
    if server is not None:
        server.close()
    if any(reasons):
        for connection in connections.values():
            connection.close()
        return next(reason for reason in reasons if reason)
    for connection in connections.values():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    return SharedMemory([Line(connection, peer) for peer, connection in sorted(connections.items())], rank, timeout)


def _listen(world: int) -> tuple[socket.socket | None, bytes, str]:
    """A socket for the ranks above this one, its name in the network namespace, and what is wrong."""
    name = b"\0dlrmx-" + secrets.token_hex(NAME_BYTES).encode()
    if sys.platform != "linux":
        return None, name[:NAME_BYTES], f"not on {sys.platform}"
    try:
        os.close(new_memory(1)[0])
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(name[:NAME_BYTES])
        server.listen(world)
    except OSError as error:
        return None, name[:NAME_BYTES], f"no shared memory: {error}"
    return server, name[:NAME_BYTES], ""


def _accept(server: socket.socket, connections: dict[int, socket.socket], world: int) -> None:
    """Take the connections of all other ranks that have not been connected to; names can be seen by other users."""
    server.settimeout(MEETING.total_seconds())
    while len(connections) < world - 1:
        connection, _ = server.accept()
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        if CREDENTIALS.unpack(told)[1] != os.getuid():
            connection.close()
            continue
        connection.settimeout(MEETING.total_seconds())
        connections[RANK.unpack(connection.recv(RANK.size))[0]] = connection
