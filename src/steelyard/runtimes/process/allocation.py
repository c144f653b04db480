"""Ports and cores for replicas: never a port that is in use."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from zlib import crc32

from ...addresses import Address, replica_address
from ...config.commands import fill_in
from ..base import ReplicaStartError
from . import procfs

_CONNECT_TIMEOUT_SECONDS = 0.05
_RESOLVE_TIMEOUT_SECONDS = 5.0
_WILDCARD_PLACES = (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")
HostAddress = tuple[socket.AddressFamily, str]


def address_of(url: str) -> Address:
    try:
        return replica_address(url)
    except ValueError as problem:
        raise ReplicaStartError("failed", str(problem)) from None


async def host_addresses(url: str) -> set[HostAddress]:
    """What the host of a replica's URL resolves to; none for the path of a socket."""
    host = address_of(fill_in(url, {"port": 1, "id": "id"})).host
    if not host:
        return set()
    found = asyncio.get_running_loop().getaddrinfo(host, 1, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_SECONDS):
            return {(socket.AddressFamily(family), str(name[0])) for family, _, _, _, name in await found}
    except (OSError, TimeoutError) as problem:
        what = getattr(problem, "strerror", None) or "timed out"
        raise ReplicaStartError("failed", f"the host {host} of the url {url} was not found: {what}") from None


class PortAllocator:
    """The default range, 20000-29999, is outside the kernel's ephemeral ports (from 32768), so that no outgoing
    connection takes one between the choice and the replica's bind."""

    def __init__(self, gateway: str) -> None:
        self._at = crc32(gateway.encode())  # gateways that start together begin at different places

    def choose(self, first: int, last: int, places: Collection[HostAddress], taken: Collection[int]) -> int:
        """In turn: a port whose last user failed is not used again at once."""
        everywhere = {*places, *_WILDCARD_PLACES}
        for again in (False, True):
            for _ in range(first, last + 1):
                self._at += 1
                port = first + self._at % (last - first + 1)
                if port in taken or any(_is_bound(place, port, again) for place in everywhere):
                    continue
                if not any(_is_listening(place, port) for place in places):
                    return port
        raise ReplicaStartError("no_free_port", f"every port from {first} to {last} is in use")


def check_free(address: Address, places: Collection[HostAddress]) -> None:
    """Otherwise probes would take another server for the replica."""
    if address.path:
        _check_path(address.path)
    elif any(_is_bound(place, address.port, True) or _is_listening(place, address.port) for place in places):
        raise ReplicaStartError("port_in_use", f"{address} is in use{_holder(procfs.listener(address.port))}")


def _check_path(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise ReplicaStartError("port_in_use", f"{path} is there already and is no socket")
    except OSError:
        return
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(_CONNECT_TIMEOUT_SECONDS)
        # EAGAIN and a timeout: its queue is full, so a server listens. What an ended server left refuses.
        if caller.connect_ex(path) in (0, errno.EAGAIN, errno.ETIMEDOUT):
            raise ReplicaStartError("port_in_use", f"unix:{path} is in use{_holder(procfs.listener(path=path))}")


def _holder(pid: int) -> str:
    return f" by pid {pid} ({procfs.process_name(pid)})" if pid else ""


def _is_bound(place: HostAddress, port: int, again: bool) -> bool:
    """`again`: ignores connections of an earlier server in TIME_WAIT."""
    try:
        with socket.socket(place[0], socket.SOCK_STREAM) as tried:
            if again:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if place[0] == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind((place[1], port))
    except OSError as problem:
        return problem.errno == errno.EADDRINUSE  # otherwise: no such address here
    return False


def _is_listening(place: HostAddress, port: int) -> bool:
    try:
        with socket.socket(place[0], socket.SOCK_STREAM) as caller:
            caller.settimeout(_CONNECT_TIMEOUT_SECONDS)
            return caller.connect_ex((place[1], port)) == 0 and caller.getsockname() != caller.getpeername()
    except OSError:
        return False


# Without these, libraries start as many threads as the machine has cores, on the few we give.
THREAD_COUNT_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def choose_cpus(wanted: int, allowed: Collection[int], taken: Iterable[Collection[int]]) -> tuple[int, ...]:
    """Those that the fewest replicas have; all, if there are fewer than wanted."""
    held = Counter(core for cores in taken for core in cores)
    return tuple(sorted(sorted(allowed, key=lambda core: (held[core], core))[:wanted]))


@contextmanager
def pinned_to(cores: Collection[int]) -> Iterator[None]:
    """For what this thread starts meanwhile; not across an `await`. Without cores, nothing changes."""
    before = os.sched_getaffinity(0)
    try:
        if cores:
            with suppress(OSError):  # one was taken from us just now: then it runs where we do
                os.sched_setaffinity(0, cores)
        yield
    finally:
        if cores:
            with suppress(OSError):
                os.sched_setaffinity(0, before)
