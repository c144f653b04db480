"""The rules of where replicas are found."""

from __future__ import annotations

from collections.abc import Iterator

from ...addresses import is_host, listen_address
from ...documents import Key, Problem
from ..formats import parse_network
from ..sections.health import DiscoveryConfig
from ..sections.root import ModelConfig
from .health import MIN_INTERVAL_SECONDS


def discovery_problems(key: Key, model: ModelConfig) -> Iterator[Problem]:
    for place, source in enumerate(model.discovery):
        here: Key = (*key, "discovery", place)
        if bool(source.file) == bool(source.dns):
            yield Problem(here, "name one of file and dns" if not source.file else "file and dns: name one of the two")
        else:
            yield from _file(here, source) if source.file else _dns(here, source)
        if source.interval < MIN_INTERVAL_SECONDS:
            yield Problem((*here, "interval"), "must be at least 10ms")
        first = model.discovery.index(source)
        if first != place:
            yield Problem(here, f"is the same as discovery[{first}]")


def _file(key: Key, source: DiscoveryConfig) -> Iterator[Problem]:
    for name, given in (("type", source.type != "a"), ("port", source.port), ("server", source.server)):
        if given:
            yield Problem((*key, name), "is for dns: leave it out, a file says it itself")


def _dns(key: Key, source: DiscoveryConfig) -> Iterator[Problem]:
    if parse_network(source.dns.strip("[]")) is not None:
        yield Problem((*key, "dns"), f"{source.dns!r} is an address, not a name: list it under replicas")
    elif not is_host(source.dns):
        yield Problem((*key, "dns"), f"{source.dns!r} is not a host name: write for example llama.models.svc")
    if source.type == "a" and not source.port:
        yield Problem((*key, "port"), "is needed: addresses come without one; write for example port: 8000")
    if source.type == "srv" and source.port:
        yield Problem((*key, "port"), "srv records name their own ports: leave it out, or write type: a")
    if source.server and (what := _name_server_error(source.server)):
        yield Problem((*key, "server"), what)


def _name_server_error(text: str) -> str:
    """`host:port`"""
    if not text.startswith("unix:"):
        try:
            address = listen_address(text)
        except ValueError:
            address = None
        if address is not None and address.host and address.port:
            return ""
    return f"{text!r} is not the address of a name server: write for example 10.0.0.53:53"
