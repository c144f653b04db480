"""Replicas from the DNS: the addresses of a name, or the hosts and ports of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import dns.exception
import dns.name

from ....config import ReplicaConfig
from ...address_guard import forbidden_reason
from ..base import MAX_REPLICAS_PER_SOURCE, DiscoveryError, DiscoveryResult, Source, list_some, too_many_replicas
from .addresses import AddressResolver, Endpoint, ServiceEndpoints, resolve_service
from .config import DnsDiscovery
from .resolver import NameServers

MAX_POLL_SECONDS = 30.0  # a service may have many hosts


class DnsSource(Source):
    def __init__(self, settings: DnsDiscovery) -> None:
        self._settings = settings
        self._addresses = AddressResolver()

    async def poll(self) -> DiscoveryResult:
        name = _parse_name(self._settings.name)
        try:
            async with asyncio.timeout(MAX_POLL_SECONDS):
                servers = await NameServers.find(self._settings.name_server)
                if self._settings.record_type == "srv":
                    return self._found(await resolve_service(servers, name, self._addresses))
                return self._found(await self._host(servers, name))
        except TimeoutError:
            raise DiscoveryError(f"{self._settings.name}: not all answers came within {MAX_POLL_SECONDS:g} s") from None

    async def _host(self, servers: NameServers, name: dns.name.Name) -> ServiceEndpoints:
        found = await self._addresses.resolve(servers, name)
        if found.problem and not (found.answered and found.addresses):
            raise DiscoveryError(found.problem)  # no answer does not mean no replicas
        if not found.exists and not found.addresses:
            raise DiscoveryError(f"{self._settings.name}: there is no such name")
        places = [Endpoint(address, self._settings.port) for address in found.addresses]
        return ServiceEndpoints(places, found.ttls, (found.problem,) if found.problem else ())

    def _found(self, resolved: ServiceEndpoints) -> DiscoveryResult:
        allowed, refused = _split_allowed(resolved.endpoints)
        if len(allowed) > MAX_REPLICAS_PER_SOURCE:
            raise too_many_replicas(len(allowed))
        # The order of answers changes without meaning.
        allowed.sort(key=lambda place: (place.address.version, int(place.address), place.port, -place.weight))
        replicas: dict[str, ReplicaConfig] = {}
        for place in allowed:
            replica = ReplicaConfig(url=_url(self._settings.scheme, place), weight=place.weight)
            replicas.setdefault(replica.url, replica)
        note = list_some([*resolved.problems, *refused])
        return DiscoveryResult(tuple(replicas.values()), min(resolved.ttls, default=None), note)


def _parse_name(text: str) -> dns.name.Name:
    try:
        return dns.name.from_text(text, origin=None)  # relative: the system may have domains to search
    except (dns.exception.DNSException, ValueError) as problem:
        raise DiscoveryError(f"{text!r} is not a name of the DNS: {problem}") from None


def _split_allowed(places: Iterable[Endpoint]) -> tuple[list[Endpoint], list[str]]:
    allowed, refused = [], []
    for place in places:
        if reason := forbidden_reason(place.address):
            refused.append(f"{place.address} is not taken: {reason}")
        else:
            allowed.append(place)
    return allowed, list(dict.fromkeys(refused))


def _url(scheme: str, place: Endpoint) -> str:
    host = f"[{place.address}]" if place.address.version == 6 else str(place.address)
    return f"{scheme}://{host}:{place.port}" if place.port else f"{scheme}://{host}"
