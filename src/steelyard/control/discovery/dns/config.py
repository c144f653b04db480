"""`kind: dns` in a configuration. Does not import dnspython."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ....addresses import is_host, listen_address
from ....config.formats import parse_network
from ....config.sections.base import Port, described
from ....config.sections.discovery import DiscoverySection
from ....documents import Key, Problem

if TYPE_CHECKING:
    from .source import DnsSource


class DnsDiscovery(DiscoverySection, frozen=True):
    """Replicas that the DNS knows: the addresses of a name, or the hosts and ports of a service."""

    __renamed__: ClassVar[dict[str, str]] = {"dns": "name", "server": "name_server", "type": "record_type"}
    names_devices = False

    name: Annotated[str, described("each of its addresses is a replica", examples=["llama.models.svc"])]
    record_type: Annotated[
        Literal["a", "srv"], described("`a`: addresses, both IPv4 and IPv6; `srv`: hosts with ports")
    ] = "a"
    port: Annotated[Port, described("port of the addresses; required with `record_type: a`")] = 0
    scheme: Annotated[Literal["http", "https"], described("default scheme")] = "http"
    name_server: Annotated[str, described("`host:port`; empty: those of the system")] = ""

    @property
    def may_use_tls(self) -> bool:
        return self.scheme == "https"

    def describe(self) -> str:
        asked = f" at {self.name_server}" if self.name_server else ""
        return f"dns {self.name} ({'SRV' if self.record_type == 'srv' else 'A, AAAA'}){asked}"

    def problems(self, key: Key) -> Iterator[Problem]:
        if parse_network(self.name.strip("[]")) is not None:
            yield Problem((*key, "name"), f"{self.name!r} is an address, not a name: list it under replicas")
        elif not is_host(self.name):
            yield Problem((*key, "name"), f"{self.name!r} is not a host name: write for example llama.models.svc")
        if self.record_type == "a" and not self.port:
            yield Problem((*key, "port"), "is needed: addresses come without one; write for example port: 8000")
        if self.record_type == "srv" and self.port:
            yield Problem((*key, "port"), "srv records name their own ports: leave it out, or write record_type: a")
        if self.name_server and (what := _name_server_error(self.name_server)):
            yield Problem((*key, "name_server"), what)

    def open(self) -> DnsSource:
        from .source import DnsSource  # dnspython is imported when a name is looked up

        return DnsSource(self)


def _name_server_error(text: str) -> str:
    """Empty: it is `host:port`."""
    if not text.startswith("unix:"):
        try:
            address = listen_address(text)
        except ValueError:
            address = None
        if address is not None and address.host and address.port:
            return ""
    return f"{text!r} is not the address of a name server: write for example 10.0.0.53:53"
