"""Where replicas are found besides those listed: one struct a kind, beside its source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from ...documents import Key, Problem, Seconds
from .base import Section, described
from .kinds import ConfigKind

DISCOVERY_KINDS: dict[str, str] = {
    "file": "steelyard.control.discovery.file:FileDiscovery",
    "dns": "steelyard.control.discovery.dns.config:DnsDiscovery",
}


class DiscoveryConfig(ConfigKind):
    """An entry of `discovery`, of whatever kind."""

    __slots__ = ()

    noun = "discovery source"
    base_name = "steelyard.config.DiscoverySection"
    kinds = DISCOVERY_KINDS
    kind_of_old_key: ClassVar = {"file": "file", "dns": "dns"}
    live_fields = frozenset({"interval", "hold_down"})
    names_devices: ClassVar[bool] = True  # can it say on which device a replica runs?
    interval: Seconds
    hold_down: Seconds

    def problems(self, key: Key) -> Iterator[Problem]:
        """What types cannot express. `key`: its place in the configuration."""
        yield from ()

    def open(self) -> Any:
        """Make the `steelyard.control.discovery.Source`, inside a running loop. Import here what only it needs."""
        raise NotImplementedError


class DiscoverySection(Section, DiscoveryConfig, frozen=True, omit_defaults=False, kw_only=True):
    """The keys that every kind of source has. Your own kind derives from it."""

    kind: Annotated[str, described("`file`, `dns`, or `package.module:Class`: a source of your own")] = ""
    interval: Annotated[Seconds, described("longest time between two queries; a DNS TTL may be shorter")] = Seconds(30)
    hold_down: Annotated[Seconds, described("losing more than half of the replicas counts after this")] = Seconds(60)

    __renamed__: ClassVar[dict[str, str]] = {"hold": "hold_down"}
