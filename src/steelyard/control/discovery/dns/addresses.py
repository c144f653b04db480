"""The addresses behind a name, IPv4 and IPv6. Half an answer is not taken for the whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

import dns.name
import dns.rdatatype
import dns.rrset

from ..base import DiscoveryError
from .resolver import DnsAnswer, NameServers

IPAddress = IPv4Address | IPv6Address
ADDRESS_TYPES = (dns.rdatatype.A, dns.rdatatype.AAAA)


class ResolvedAddresses(NamedTuple):
    addresses: tuple[IPAddress, ...]
    ttls: tuple[float, ...] = ()
    exists: bool = True
    answered: bool = True  # at least one of the two queries
    problem: str = ""  # a query failed, so addresses may be missing or old


class AddressResolver:
    """Where a query fails, its last answer stays in force."""

    def __init__(self) -> None:
        self._known: dict[tuple[dns.name.Name, dns.rdatatype.RdataType], tuple[IPAddress, ...]] = {}

    async def resolve(self, servers: NameServers, name: dns.name.Name) -> ResolvedAddresses:
        """Never raises: `problem` names a failure."""
        answers = await asyncio.gather(*(_query_or_error(servers, name, kind) for kind in ADDRESS_TYPES))
        good = [answer for answer in answers if isinstance(answer, DnsAnswer)]
        found: list[IPAddress] = []
        problems: list[str] = []
        for kind, answer in zip(ADDRESS_TYPES, answers, strict=True):
            if isinstance(answer, DnsAnswer):
                self._known[name, kind] = tuple(ip_address(str(record)) for record in answer.records)
            elif self._known.get((name, kind)):
                problems.append(f"{answer}; its last answer is kept")
            found += self._known.get((name, kind), ())
        if not found:  # otherwise: some name servers always fail on AAAA
            problems = [str(answer) for answer in answers if isinstance(answer, DiscoveryError)]
        ttls = tuple(answer.ttl for answer in good if answer.records)
        exists = any(answer.exists for answer in good)
        return ResolvedAddresses(tuple(found), ttls, exists, bool(good), problems[0] if problems else "")

    def keep(self, names: Iterable[dns.name.Name]) -> None:
        kept = set(names)
        self._known = {key: addresses for key, addresses in self._known.items() if key[0] in kept}


async def _query_or_error(
    servers: NameServers, name: dns.name.Name, kind: dns.rdatatype.RdataType
) -> DnsAnswer | DiscoveryError:
    try:
        return await servers.query(name, kind)
    except DiscoveryError as problem:
        return problem


def additional_addresses(name: dns.name.Name, additional: Iterable[dns.rrset.RRset]) -> ResolvedAddresses | None:
    """The addresses that came with the answer to another query (RFC 2782); None: they did not."""
    sets = [found for found in additional if found.name == name and found.rdtype in ADDRESS_TYPES]
    addresses = tuple(ip_address(str(record)) for found in sets for record in found)
    return ResolvedAddresses(addresses, tuple(float(found.ttl) for found in sets)) if addresses else None
