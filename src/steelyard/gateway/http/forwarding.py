"""The client's identity for replicas: `via`, `x-forwarded-*`. Values of a client count only if it is trusted."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from ...addresses import unmapped_network
from ..exchange import Exchange

VIA_LINE = b"via: 1.1 steelyard"


class ForwardedHeaders:
    """What one client's connection adds to each request; worked out once a connection."""

    __slots__ = ("client", "default_lines", "proto", "trusted")

    def __init__(self, client: str, tls: bool, trusts: bool) -> None:
        self.client = client.encode()
        self.proto = b"https" if tls else b"http"
        self.trusted = trusts  # the peer is a proxy that is believed
        # For peers that are not believed, which are most.
        self.default_lines = b"\r\n".join(
            (VIA_LINE, b"x-forwarded-for: " + self.client, b"x-forwarded-proto: " + self.proto)
        )

    def lines_for(self, exchange: Exchange) -> bytes:
        """The lines to add to this request; asked once, because it takes the client's own out."""
        if not self.trusted:
            host = exchange.host
            return self.default_lines + b"\r\nx-forwarded-host: " + host if host else self.default_lines
        # The client that the peer names stays the client, and the peer joins the list.
        headers = exchange.wanted_headers or {}
        chain = [line.partition(b":")[2].strip() for line in exchange.header_lines if _is_forwarded_for(line)]
        exchange.header_lines = [line for line in exchange.header_lines if not _is_forwarded_for(line)]
        added = [VIA_LINE, b"x-forwarded-for: " + b", ".join((*chain, self.client))]
        if b"x-forwarded-proto" not in headers:
            added.append(b"x-forwarded-proto: " + self.proto)
        if b"x-forwarded-host" not in headers and exchange.host:
            added.append(b"x-forwarded-host: " + exchange.host)
        return b"\r\n".join(added)


def client_network(host: str) -> str:
    """What one client has to itself: an IPv4 address, or an IPv6 /64."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.packed[:8].hex()


def _is_forwarded_for(line: bytes) -> bool:
    return line[:16].lower() == b"x-forwarded-for:"


class TrustedNetworks:
    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [unmapped_network(network) for network in networks]

    def contains(self, host: str) -> bool:
        if not self._networks:
            return False
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False  # a Unix socket
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)
