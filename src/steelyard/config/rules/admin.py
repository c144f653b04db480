"""The rules of the admin API."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...addresses import DEFAULT_ADMIN_PORT, WILDCARD_HOSTS, Address, is_host, listen_address, unmapped_host
from ...documents import Key, Problem
from ..formats import network_hint, parse_network, zero_problems
from ..sections.root import Config

_PORT_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def admin_problems(config: Config) -> Iterator[Problem]:
    admin = config.admin
    if admin.listen:
        yield from _listen(admin.listen, config)
    for place, text in enumerate(admin.allowed_replicas):
        if what := _host_or_network_error(text):
            yield Problem(("admin", "allowed_replicas", place), what)
    for place, text in enumerate(admin.allowed_ports):
        if what := _port_range_error(text):
            yield Problem(("admin", "allowed_ports", place), what)
    yield from zero_problems(("admin",), admin, "max_lease")


def _listen(text: str, config: Config) -> Iterator[Problem]:
    key: Key = ("admin", "listen")
    try:
        address = listen_address(text, DEFAULT_ADMIN_PORT)
    except ValueError as problem:
        yield Problem(key, str(problem))
        return
    if not address.is_loopback and not config.admin.token_file:
        yield Problem(key, f"other machines can reach {text}: name a token_file, or listen on 127.0.0.1")
    if any(_overlap(address, other) for other in _valid_addresses(config.listen_texts)):
        yield Problem(key, f"{text!r} is where requests come in: give the admin API an address of its own")


def _overlap(one: Address, other: Address) -> bool:
    """Would the second find its address taken?"""
    if one.path or other.path:
        return one.path == other.path
    hosts = {unmapped_host(one.host), unmapped_host(other.host)}
    same = len(hosts) == 1 or not hosts.isdisjoint(WILDCARD_HOSTS)
    return same and one.port == other.port != 0


def _host_or_network_error(text: str) -> str:
    """A network, a host name, or `*.` and the end of one."""
    if (found := parse_network(text)) is not None:
        if found.is_link_local or found.is_multicast:
            return f"{text!r}: link-local and multicast addresses are never taken: leave it out"
        return ""
    if is_host(text.removeprefix("*.")):
        return ""
    meant = network_hint(text) or ": write for example 10.0.0.0/8, gpu7.example or *.models.svc"
    return f"{text!r} is neither a network nor a host name{meant}"


def _port_range_error(text: str) -> str:
    match = _PORT_RANGE.fullmatch(text)
    if match is None:
        return f"{text!r} is neither a port nor a range of them: write for example 8000 or 8000-8999"
    first, last = int(match[1]), int(match[2] or match[1])
    if not (1 <= first <= 65535 and 1 <= last <= 65535):
        return f"{text!r}: a port is from 1 to 65535"
    return f"{text!r}: the range ends before it begins" if last < first else ""


IS_LISTEN_ADDRESS = "this is where Steelyard itself takes requests: name the model server's own address"
IS_ADMIN_ADDRESS = "this is Steelyard's own admin API: name the model server's own address"


def gateway_address_error(address: Address, config: Config, admin: Address | None = None) -> str:
    """Why a replica cannot be there; empty: it can. `admin`: where the admin API really listens, if known."""
    if any(address.reaches(listener) for listener in _valid_addresses(config.listen_texts)):
        return IS_LISTEN_ADDRESS
    admins = [admin] if admin is not None else list(_valid_addresses((config.admin.listen or "",)))
    return IS_ADMIN_ADDRESS if any(address.reaches(listener) for listener in admins) else ""


def _valid_addresses(texts: tuple[str, ...]) -> Iterator[Address]:
    for text in texts:
        try:
            yield listen_address(text)
        except ValueError:
            continue  # reported elsewhere, or there is none
