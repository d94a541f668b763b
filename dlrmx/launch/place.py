"""Which node of a job this process is, told by its scheduler through the environment, alike for all schedulers.

DLRMX_RENDEZVOUS   host:port of node 0, for more than one node; it may take one of the next PORTS - 1 ports instead
DLRMX_NODE_RANK    0 leads; without it SLURM_NODEID (Slurm), VC_TASK_INDEX (Volcano), JOB_COMPLETION_INDEX (Indexed Job)
DLRMX_APP          what the scheduler calls the job, noted in run.json; may be absent
DLRMX_START        differs between two starts of one job, where the scheduler may start it again; may be absent
"""

import fcntl
import hashlib
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from dlrmx.errors import InputError

RENDEZVOUS_VARIABLE = "DLRMX_RENDEZVOUS"
APP_VARIABLE = "DLRMX_APP"
START_VARIABLE = "DLRMX_START"
NODE_RANK_VARIABLES = ("DLRMX_NODE_RANK", "SLURM_NODEID", "VC_TASK_INDEX", "JOB_COMPLETION_INDEX")
START_AGAIN = 75  # EX_TEMPFAIL: exit code with which a node asks its scheduler to start the job again
# Two jobs may get one port on one machine: the second takes the next, and who asks the wrong one is sent on.
PORTS = 8

SIOCGIFADDR = 0x8915  # linux/sockios.h


@dataclass(frozen=True)
class Place:
    """Node `node` of `nodes`; node 0, which leads, is to be found at host:port."""

    node: int = 0
    nodes: int = 1
    host: str = "localhost"
    port: int = 0

    @property
    def leads(self) -> bool:
        return self.node == 0


def place_of(environ: Mapping[str, str], nodes: int) -> Place:
    """This process's place in a job of so many nodes. InputError where the environment does not say it."""
    if nodes == 1:
        return Place()
    host, _, port = environ.get(RENDEZVOUS_VARIABLE, "").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= 65_535 - PORTS:
        found = environ.get(RENDEZVOUS_VARIABLE)
        hint = "the job's script or manifest sets it: `dlrmx train --dry-run` prints it"
        raise InputError(f"{RENDEZVOUS_VARIABLE} must be host:port of node 0, not {found!r}", hint=hint)
    rank = next((environ[name] for name in NODE_RANK_VARIABLES if name in environ), "")
    if not rank.isdecimal() or int(rank) >= nodes:
        raise InputError(f"no node of {nodes} is {rank!r} ({', '.join(NODE_RANK_VARIABLES)})")
    return Place(int(rank), nodes, host, int(port))


def token_of(environ: Mapping[str, str], job: str) -> str:
    """What the node processes of one start of one job know, and no others."""
    return hashlib.sha256(f"{job}\n{environ.get(START_VARIABLE, '')}".encode()).hexdigest()


def interface_of(address: str) -> str | None:
    """The network interface with that IPv4 address; None where there is none."""
    wanted = address.removeprefix("::ffff:")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an address
            if socket.inet_ntoa(answer[20:24]) == wanted:
                return name
    return None


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
