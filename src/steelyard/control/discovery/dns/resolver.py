"""One query to the name servers: its answer, or what went wrong in words."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, NamedTuple

import dns.asyncresolver
import dns.exception
import dns.name
import dns.nameserver
import dns.rdata
import dns.rdatatype
import dns.resolver
import dns.rrset
from dns._asyncio_backend import Backend

from ....addresses import listen_address
from ..base import DiscoveryError


class CancelSafeBackend(Backend):
    """Closes a UDP socket whose opening is cancelled; uvloop leaves it open, and fails over it at the end."""

    async def make_socket(self, af: int, socktype: int, *more: Any, **options: Any) -> Any:
        make: Any = super().make_socket
        if socktype != socket.SOCK_DGRAM:
            return await make(af, socktype, *more, **options)
        opening = asyncio.ensure_future(make(af, socktype, *more, **options))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            with suppress(OSError):
                await (await opening).close()  # returns at once: UDP does not connect
            raise


QUERY_TIMEOUT_SECONDS = 5.0  # all name servers and tries together
MAX_UDP_PAYLOAD_BYTES = 1232  # never fragmented (DNS flag day 2020)
_BACKEND = CancelSafeBackend()


class DnsAnswer(NamedTuple):
    """Without `records`: none of this type. Not `exists`: no such name."""

    records: tuple[dns.rdata.Rdata, ...]
    ttl: float  # the least, aliases included
    additional: tuple[dns.rrset.RRset, ...]
    exists: bool


NO_SUCH_NAME = DnsAnswer((), 0.0, (), False)


class NameServers:
    """Those in /etc/resolv.conf now, or the configured one."""

    def __init__(self, resolver: dns.asyncresolver.Resolver, search: bool) -> None:
        self._resolver = resolver
        self._search = search
        resolver.use_edns(0, 0, MAX_UDP_PAYLOAD_BYTES)

    @classmethod
    async def find(cls, server: str) -> NameServers:
        """`server`: `host:port`; empty: those of the system, with its search domains."""
        try:
            if not server:
                return cls(dns.asyncresolver.Resolver(), search=True)
            resolver = dns.asyncresolver.Resolver(configure=False)
            resolver.nameservers = await _addresses_of(server)
        except (dns.exception.DNSException, ValueError, OSError) as problem:
            raise DiscoveryError(f"name server {server or 'of the system'}: {_describe(problem)}") from None
        return cls(resolver, search=False)

    async def query(self, name: dns.name.Name, kind: dns.rdatatype.RdataType) -> DnsAnswer:
        """DiscoveryError: no name server has an answer."""
        asked = f"{name.to_text(omit_final_dot=True)} {kind.name}"
        try:
            # A timeout of the loop: dnspython's own follows jumps of the wall clock.
            async with asyncio.timeout(QUERY_TIMEOUT_SECONDS):
                found = await self._resolver.resolve(
                    name,
                    kind,
                    raise_on_no_answer=False,
                    search=self._search,
                    lifetime=QUERY_TIMEOUT_SECONDS,
                    backend=_BACKEND,
                )
        except dns.resolver.NXDOMAIN:
            return NO_SUCH_NAME
        except (dns.exception.Timeout, TimeoutError):
            raise DiscoveryError(f"{asked}: no name server answered within {QUERY_TIMEOUT_SECONDS:g} s") from None
        except (dns.exception.DNSException, OSError) as problem:
            raise DiscoveryError(f"{asked}: {_describe(problem)}") from None
        ttl = float(found.chaining_result.minimum_ttl)
        return DnsAnswer(tuple(found.rrset or ()), ttl, tuple(found.response.additional), True)


async def _addresses_of(server: str) -> list[dns.nameserver.Nameserver]:
    address = listen_address(server)
    if not address.host or not address.port:
        raise ValueError("write its host and port, for example 127.0.0.1:8600")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
    return [dns.nameserver.Do53Nameserver(str(place[0]), address.port) for *_, place in found]


def _describe(problem: Exception) -> str:
    if isinstance(problem, dns.resolver.NoNameservers):
        errors = problem.kwargs.get("errors") or [("", False, 0, "nothing", None)]
        server, _, _, what, _ = errors[-1]
        return f"no name server has an answer; {server} says {what or type(what).__name__}"
    return " ".join(str(problem).split()) or type(problem).__name__
