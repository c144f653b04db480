"""This replica's address and name."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from ..http.asgi import Scope

DEFAULT_PORTS = {"http": 80, "https": 443}


def address_from_request(scope: Scope, gateways: Sequence[str]) -> str:
    """The server's URL; empty: not told, or of no use to a gateway."""
    host, port = (scope.get("server") or ("", None))[:2]
    if not host or not port or scope.get("type") != "http":
        return ""
    if _is_loopback(host) and not all(_is_local(gateway) for gateway in gateways):
        return ""  # the gateway is on another machine
    return f"{scope.get('scheme') or 'http'}://{_host_port(host, int(port))}"


def replica_name(url: str) -> str:
    """Host and port, as a gateway calls a replica without a name."""
    from urllib.parse import urlsplit

    if url.startswith("unix:"):
        return url
    parts = urlsplit(url)
    return _host_port(parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme])


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_local(gateway: str) -> bool:
    from urllib.parse import urlsplit

    return gateway.startswith("unix:") or _is_loopback(urlsplit(gateway).hostname or "")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
        return (getattr(address, "ipv4_mapped", None) or address).is_loopback  # before 3.13 it does not look inside
    except ValueError:
        return False
