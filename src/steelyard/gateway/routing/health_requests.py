"""Requests that only look: probes and scrapes by whoever stands in front of the gateway.

A model that is started on demand is neither woken by them nor kept awake, or one probe every ten seconds would keep it
for ever. And while it has no replica a probe hears that all is well: told otherwise, nobody would send the request that
wakes it.
"""

from __future__ import annotations

from typing import Final

from ...config import Config
from ...protocols.base import LocalReply

NOT_HEALTH_REQUEST: Final = 0
PROBE: Final = 1
SCRAPE: Final = 2

PROBE_PATHS: Final = frozenset(("/health", "/healthz", "/ready", "/readyz", "/live", "/livez", "/ping"))
SCRAPE_PATHS: Final = frozenset(("/metrics", "/version", "/favicon.ico"))
READ_METHODS: Final = (b"GET", b"HEAD")

SCALED_TO_ZERO_REPLY: Final = LocalReply(200, b"No replica runs now; a request starts one.\n", "text/plain")


class HealthRequests:
    def __init__(self, config: Config) -> None:
        started = [model for model in config.models.values() if model.runtime is not None]
        own = {path.partition("?")[0] for model in started for path in (model.health.path, model.health.live)}
        self._probes: frozenset[str] = PROBE_PATHS | own - {"", "/"} if started else frozenset()
        self._scrapes: frozenset[str] = SCRAPE_PATHS if started else frozenset()

    def kind(self, method: bytes, path: str) -> int:
        if method not in READ_METHODS:
            return NOT_HEALTH_REQUEST
        return PROBE if path in self._probes else SCRAPE if path in self._scrapes else NOT_HEALTH_REQUEST
