"""SRV records (RFC 2782): the hosts and ports of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import dns.name
import dns.rdata
import dns.rdatatype
from dns.rdtypes.IN.SRV import SRV

from ..base import DiscoveryError
from .addresses import AddressResolver, IPAddress, ResolvedAddresses, additional_addresses
from .resolver import NameServers

MAX_CONCURRENT_QUERIES = 16  # for addresses of hosts


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
