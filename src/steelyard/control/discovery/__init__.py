"""Where replicas are found besides those that a configuration lists.

A new source is one file, with the struct of its configuration and the source, and one line in the table
(config/sections/discovery.py); the suite in tests/control/discovery/test_every_source.py finds it.
"""

from __future__ import annotations

from .base import DiscoveryError, DiscoveryResult, Source

__all__ = ["DiscoveryError", "DiscoveryResult", "Source"]
