"""How listening sockets pass from a gateway to its successor: a Unix socket for the user alone, packets of JSON, and
file descriptors beside them (SCM_RIGHTS).

    successor → supervisor   `Take`      answered with `Given` and the sockets, or `Refused`
    successor → supervisor   `Ready`     answered with `Leaving`: the old workers drain. The connection ends with the
                                         old supervisor; if the successor's end closes before `Ready`, nothing changes
    worker    → supervisor   `Orphan`    with its sockets: its own supervisor was killed. Answered with `Relieved`
                                         when workers of the new one serve

HAProxy (`expose-fd listeners`), Envoy (hot restart) and nginx (USR2) move sockets the same way: a socket that somebody
has open is never closed, so nothing that waits in its queue is reset.
"""

from __future__ import annotations

import array
import os
import socket
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..config import ReplicaConfig
from ..documents import decode_value, encode_value

PROTOCOL_VERSION = 1  # of these messages; both sides must have the same
PACKET_BYTES = 32 << 10  # bytes of a packet
MAX_DESCRIPTORS_PER_PACKET = 64  # file descriptors in a packet; the kernel takes at most 253
MAX_MESSAGE_BYTES = 64 << 20  # bytes of a message
PACKET_TIMEOUT_SECONDS = 5.0  # seconds for the other side to take or send a packet
MORE_PACKETS, LAST_PACKET = b"+", b"."


class LeaseState(msgspec.Struct, frozen=True, array_like=True):
    """A registered replica."""

    model: str
    replica: ReplicaConfig
    instance: str
    seconds: float  # left


class FleetState(msgspec.Struct, frozen=True):
    """What a supervisor knows that is in no file: set by operators and said by replicas."""

    ready: dict[str, tuple[str, ...]] = {}  # model → replicas
    drained: tuple[tuple[str, str], ...] = ()  # model and replica, by an operator
    weights: tuple[tuple[str, str, float], ...] = ()
    models: dict[str, dict[str, Any]] = {}  # policy, policy_options, concurrency
    added: dict[str, tuple[ReplicaConfig, ...]] = {}
    leases: tuple[LeaseState, ...] = ()


class TakeOverRequest(msgspec.Struct, frozen=True, tag="take"):
    pid: int
    version: str
    protocol: int = PROTOCOL_VERSION


class TakeOverGranted(msgspec.Struct, frozen=True, tag="given"):
    pid: int
    version: str
    state: FleetState


class TakeOverRefused(msgspec.Struct, frozen=True, tag="refused"):
    problem: str


class SuccessorReady(msgspec.Struct, frozen=True, tag="ready"):
    pass


class PredecessorDraining(msgspec.Struct, frozen=True, tag="leaving"):
    seconds: float  # that its workers have


class OrphanedWorker(msgspec.Struct, frozen=True, tag="orphan"):
    pid: int
    protocol: int = PROTOCOL_VERSION


class OrphanReleased(msgspec.Struct, frozen=True, tag="relieved"):
    pass


HandoverMessage = (
    TakeOverRequest
    | TakeOverGranted
    | TakeOverRefused
    | SuccessorReady
    | PredecessorDraining
    | OrphanedWorker
    | OrphanReleased
)
_decoder = msgspec.json.Decoder(HandoverMessage, dec_hook=decode_value)


class HandoverError(Exception):
    """The other side is gone, is somebody else, or does not speak this protocol; in one sentence."""


def connect(path: Path) -> socket.socket | None:
    """To whoever serves there, if that is this user or root. None: nobody does."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.settimeout(PACKET_TIMEOUT_SECONDS)
    try:
        link.connect(str(path))
        check_peer(link)
    except (FileNotFoundError, ConnectionRefusedError):
        link.close()
        return None
    except (OSError, HandoverError) as problem:
        link.close()
        raise HandoverError(f"{path}: {problem}") from None
    return link


def check_peer(link: socket.socket) -> int:
    """The process at the other end; HandoverError, if it belongs to another user."""
    pid, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user not in (os.geteuid(), 0):
        raise HandoverError(f"pid {pid} belongs to another user ({user})")
    return int(pid)


def check_folder(folder: Path) -> None:
    """Made if it is not there; HandoverError, if others than this user may use it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise HandoverError(f"{folder} must belong to this user and be closed to others (chmod 700)")


def send(link: socket.socket, message: HandoverMessage, sockets: Sequence[socket.socket] = ()) -> None:
    """Waits at most PATIENCE for each packet. HandoverError: it did not arrive."""
    body = msgspec.json.encode(message, enc_hook=encode_value)
    pieces = [body[at : at + PACKET_BYTES] for at in range(0, len(body), PACKET_BYTES)]
    fds = [one.fileno() for one in sockets]
    while len(pieces) * MAX_DESCRIPTORS_PER_PACKET < len(fds):
        pieces.append(b"")
    try:
        for number, piece in enumerate(pieces):
            mark = LAST_PACKET if number == len(pieces) - 1 else MORE_PACKETS
            some = array.array(
                "i", fds[number * MAX_DESCRIPTORS_PER_PACKET : (number + 1) * MAX_DESCRIPTORS_PER_PACKET]
            )
            link.sendmsg([mark + piece], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, some)] if some else [])
    except OSError as problem:
        raise HandoverError(f"the other side does not listen: {problem}") from None


def receive(link: socket.socket) -> tuple[HandoverMessage, list[socket.socket]]:
    """Waits at most PATIENCE for each packet. HandoverError: it is gone, or silent, or says something else."""
    body, sockets = bytearray(), list[socket.socket]()
    try:
        while True:
            data, fds, _, _ = socket.recv_fds(
                link, PACKET_BYTES + 1, MAX_DESCRIPTORS_PER_PACKET, socket.MSG_CMSG_CLOEXEC
            )
            sockets += [socket.socket(fileno=fd) for fd in fds]
            body += data[1:]
            if not data:
                raise HandoverError("the other side ended")
            if len(body) > MAX_MESSAGE_BYTES or data[:1] not in (MORE_PACKETS, LAST_PACKET):
                raise HandoverError("the other side speaks another language")
            if data[:1] == LAST_PACKET:
                return _decoder.decode(bytes(body)), sockets
    except Exception as problem:  # OSError, and whatever is wrong with what it says
        for one in sockets:
            one.close()
        late = f"it did not answer in {PACKET_TIMEOUT_SECONDS:g} s"
        raise HandoverError(late if isinstance(problem, TimeoutError) else str(problem)) from None
