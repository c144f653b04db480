"""Listening sockets pass from a gateway to its successor: a Unix socket for the user alone, packets of JSON, and file
descriptors beside them (SCM_RIGHTS).

    successor → supervisor   `TakeOverRequest`   answered with `TakeOverGranted` and the sockets, or `TakeOverRefused`
    successor → supervisor   `SuccessorReady`    answered with `PredecessorDraining`: the old workers drain. The
                                                 connection ends with the old supervisor; a successor that ends before
                                                 `SuccessorReady` changes nothing
    worker    → supervisor   `OrphanedWorker`    with its sockets: its supervisor was killed. Answered with
                                                 `OrphanReleased` when workers of the new one serve

HAProxy (`expose-fd listeners`), Envoy (hot restart) and nginx (USR2) do the same: a socket that stays open somewhere
resets nothing that waits in its queue.
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

PROTOCOL_VERSION = 2
PACKET_BYTES = 32 << 10
MAX_DESCRIPTORS_PER_PACKET = 64  # the kernel takes at most 253
MAX_MESSAGE_BYTES = 64 << 20
PACKET_TIMEOUT_SECONDS = 5.0
MORE_PACKETS, LAST_PACKET = b"+", b"."


class LeaseState(msgspec.Struct, frozen=True, array_like=True):
    model: str
    replica: ReplicaConfig
    instance: str
    seconds: float  # left


class FleetState(msgspec.Struct, frozen=True):
    """What is in no file: set by operators, or reported by replicas."""

    ready: dict[str, tuple[str, ...]] = {}  # model → replicas
    drained: tuple[tuple[str, str], ...] = ()  # model and replica, by an operator
    weights: tuple[tuple[str, str, float], ...] = ()
    models: dict[str, dict[str, Any]] = {}  # policy, policy_options, concurrency
    added: dict[str, tuple[ReplicaConfig, ...]] = {}
    leases: tuple[LeaseState, ...] = ()


class TakeOverRequest(msgspec.Struct, frozen=True, tag=True):
    pid: int
    version: str
    protocol: int = PROTOCOL_VERSION


class TakeOverGranted(msgspec.Struct, frozen=True, tag=True):
    pid: int
    version: str
    state: FleetState


class TakeOverRefused(msgspec.Struct, frozen=True, tag=True):
    problem: str


class SuccessorReady(msgspec.Struct, frozen=True, tag=True):
    pass


class PredecessorDraining(msgspec.Struct, frozen=True, tag=True):
    seconds: float  # that its workers have


class OrphanedWorker(msgspec.Struct, frozen=True, tag=True):
    pid: int
    protocol: int = PROTOCOL_VERSION


class OrphanReleased(msgspec.Struct, frozen=True, tag=True):
    pass


_TakeOver = TakeOverRequest | TakeOverGranted | TakeOverRefused | SuccessorReady | PredecessorDraining
HandoverMessage = _TakeOver | OrphanedWorker | OrphanReleased
_decoder = msgspec.json.Decoder(HandoverMessage, dec_hook=decode_value)


class HandoverError(Exception):
    """One sentence: the other process is gone, belongs to another user, or uses another protocol."""


def connect(path: Path) -> socket.socket | None:
    """To this user's or root's server there. None: there is none."""
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
    """The peer's process; HandoverError, if it belongs to another user."""
    pid, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if user not in (os.geteuid(), 0):
        raise HandoverError(f"pid {pid} belongs to another user ({user})")
    return int(pid)


def check_folder(folder: Path) -> None:
    """Makes it if need be; HandoverError, if others than this user may use it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise HandoverError(f"{folder} must belong to this user and be closed to others (chmod 700)")


def send(link: socket.socket, message: HandoverMessage, sockets: Sequence[socket.socket] = ()) -> None:
    """HandoverError: it did not arrive."""
    body = msgspec.json.encode(message, enc_hook=encode_value)
    pieces = [body[at : at + PACKET_BYTES] for at in range(0, len(body), PACKET_BYTES)]
    fds = [one.fileno() for one in sockets]
    while len(pieces) * MAX_DESCRIPTORS_PER_PACKET < len(fds):
        pieces.append(b"")
    try:
        for number, piece in enumerate(pieces):
            mark = LAST_PACKET if number == len(pieces) - 1 else MORE_PACKETS
            first = number * MAX_DESCRIPTORS_PER_PACKET
            some = array.array("i", fds[first : first + MAX_DESCRIPTORS_PER_PACKET])
            link.sendmsg([mark + piece], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, some)] if some else [])
    except OSError as problem:
        raise HandoverError(f"the other process is not receiving: {problem}") from None


def receive(link: socket.socket) -> tuple[HandoverMessage, list[socket.socket]]:
    """HandoverError: the peer is gone or silent, or sent something invalid."""
    body, sockets = bytearray(), list[socket.socket]()
    try:
        while True:
            sizes = PACKET_BYTES + 1, MAX_DESCRIPTORS_PER_PACKET
            data, fds, _, _ = socket.recv_fds(link, *sizes, socket.MSG_CMSG_CLOEXEC)
            sockets += [socket.socket(fileno=fd) for fd in fds]
            body += data[1:]
            if not data:
                raise HandoverError("the other process closed the connection")
            if len(body) > MAX_MESSAGE_BYTES or data[:1] not in (MORE_PACKETS, LAST_PACKET):
                raise HandoverError("the other process sent an invalid packet")
            if data[:1] == LAST_PACKET:
                return _decoder.decode(bytes(body)), sockets
    except Exception as problem:  # OSError, or an invalid message
        for one in sockets:
            one.close()
        late = f"it did not answer in {PACKET_TIMEOUT_SECONDS:g} s"
        raise HandoverError(late if isinstance(problem, TimeoutError) else str(problem)) from None
