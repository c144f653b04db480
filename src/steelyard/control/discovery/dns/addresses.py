"""The addresses behind a name, IPv4 and IPv6, and behind a service: SRV records (RFC 2782)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

import dns.name
import dns.rdata
import dns.rdatatype
import dns.rrset
from dns.rdtypes.IN.SRV import SRV

from ..base import DiscoveryError
from .resolver import DnsAnswer, NameServers

IPAddress = IPv4Address | IPv6Address
ADDRESS_TYPES = (dns.rdatatype.A, dns.rdatatype.AAAA)
MAX_CONCURRENT_QUERIES = 16  # for addresses of hosts


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


class Endpoint(NamedTuple):
    address: IPAddress
    port: int
    weight: float = 1.0


class ServiceEndpoints(NamedTuple):
    endpoints: list[Endpoint]
    ttls: tuple[float, ...]
    problems: tuple[str, ...]  # of hosts whose addresses may be missing or old


async def resolve_service(servers: NameServers, name: dns.name.Name, addresses: AddressResolver) -> ServiceEndpoints:
    """Hosts that cannot be resolved now keep their last addresses. DiscoveryError: nothing can be said."""
    answer = await servers.query(name, dns.rdatatype.SRV)
    if not answer.exists:
        raise DiscoveryError(f"{name.to_text(omit_final_dot=True)}: there is no such name")
    records = lowest_priority(answer.records)
    wanted = dict.fromkeys(record.target for record in records)
    hosts = {host: additional_addresses(host, answer.additional) for host in wanted}
    addresses.keep(wanted)
    found = await _resolve_hosts(servers, [host for host, known in hosts.items() if known is None], addresses)
    found |= {host: known for host, known in hosts.items() if known is not None}
    places = [
        Endpoint(address, record.port, float(record.weight or 1))  # 0 is "hardly ever", not never: RFC 2782
        for record in records
        for address in found[record.target].addresses
    ]
    problems = tuple(problem for host in wanted if (problem := _problem(host, found[host])))
    if problems and not places:
        raise DiscoveryError(problems[0])
    return ServiceEndpoints(places, (answer.ttl, *(ttl for known in found.values() for ttl in known.ttls)), problems)


def lowest_priority(records: Iterable[dns.rdata.Rdata]) -> list[SRV]:
    """The others are for when these fail. A target `.` is no service."""
    offered = [record for record in records if isinstance(record, SRV) and record.target != dns.name.root]
    best = min((record.priority for record in offered), default=0)
    return [record for record in offered if record.priority == best]


async def _resolve_hosts(
    servers: NameServers, hosts: list[dns.name.Name], addresses: AddressResolver
) -> dict[dns.name.Name, ResolvedAddresses]:
    turn = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

    async def one(host: dns.name.Name) -> ResolvedAddresses:
        async with turn:
            return await addresses.resolve(servers, host)

    return dict(zip(hosts, await asyncio.gather(*map(one, hosts)), strict=True))


def _problem(host: dns.name.Name, found: ResolvedAddresses) -> str:
    return found.problem or ("" if found.addresses else f"{host.to_text(omit_final_dot=True)} has no address")
