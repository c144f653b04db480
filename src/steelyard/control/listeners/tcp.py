"""TCP listeners: one for each worker, all on one address; the kernel distributes connections."""

from __future__ import annotations

import errno
import socket

import msgspec

from ...addresses import Address

LISTEN_BACKLOG = 4096  # the kernel's net.core.somaxconn may allow less


class BindAddress(msgspec.Struct):
    """One address as the kernel takes it; a host name may be several."""

    family: int
    host: str
    port: int
    dual_stack: bool = False  # IPv6 that takes IPv4 too


def resolve(address: Address) -> list[BindAddress]:
    """Raises socket.gaierror for an unknown host."""
    if not address.host:
        if socket.has_dualstack_ipv6():
            return [BindAddress(socket.AF_INET6, "::", address.port, dual_stack=True)]
        return [BindAddress(socket.AF_INET, "0.0.0.0", address.port)]
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    hosts = dict.fromkeys((family, _numeric_host(where)) for family, _, _, _, where in found)
    return [BindAddress(family, host, address.port) for family, host in hosts]


def _numeric_host(where: tuple[object, ...]) -> str:
    """With the zone of a link-local address."""
    host = str(where[0])
    return f"{host}%{where[3]}" if len(where) == 4 and where[3] and "%" not in host else host


def open_listener(place: BindAddress) -> socket.socket:
    made = _bind(place, together=True)
    made.listen(LISTEN_BACKLOG)
    made.setblocking(False)
    return made


def is_in_use(place: BindAddress) -> bool:
    """With SO_REUSEPORT alone, two gateways would share the traffic unawares."""
    try:
        _bind(place, together=False).close()
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            return True
        raise
    return False


def _bind(place: BindAddress, *, together: bool) -> socket.socket:
    made = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if together:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if place.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if place.dual_stack else 1)
        made.bind(socket.getaddrinfo(place.host, place.port, place.family, socket.SOCK_STREAM)[0][4])
    except BaseException:
        made.close()
        raise
    return made
