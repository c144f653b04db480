"""Sources of replicas besides the configuration's own list.

A new source is one file, with its configuration struct, and one line in the table (config/sections/discovery.py); the
suite in tests/control/discovery/test_every_source.py finds it.
"""

from __future__ import annotations

from .base import DiscoveryError, DiscoveryResult, Source

__all__ = ["DiscoveryError", "DiscoveryResult", "Source"]
