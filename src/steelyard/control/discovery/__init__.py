"""Where replicas are found besides those that a configuration lists.

The table of sources. A new one is one file, one line here and one key of `discovery`, by which the table names it; the
suite in tests/control/discovery/test_every_source.py finds it.
"""

from __future__ import annotations

from ...config import DiscoveryConfig
from ...core.errors import OptionError
from ...core.plugins import find_class
from .base import DiscoveryError, DiscoveryResult, Source

SOURCES: dict[str, str] = {
    "file": "steelyard.control.discovery.file:FileSource",
    "dns": "steelyard.control.discovery.dns.source:DnsSource",
}

__all__ = ["SOURCES", "DiscoveryError", "DiscoveryResult", "Source", "find_source", "kind_of", "make_source"]


def find_source(kind: str) -> type[Source]:
    return find_class("source of replicas", kind, SOURCES, Source, "steelyard.control.discovery.Source")


def kind_of(settings: DiscoveryConfig) -> str:
    """Which of the table it is: the one whose key has a value."""
    given = [kind for kind in SOURCES if getattr(settings, kind)]
    if len(given) != 1:
        raise OptionError(f"discovery: name one of {', '.join(SOURCES)}, not {' and '.join(given) or 'none'}")
    return given[0]


def make_source(settings: DiscoveryConfig) -> Source:
    return find_source(kind_of(settings))(settings)
