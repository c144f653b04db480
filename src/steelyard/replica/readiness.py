"""Whether this replica wants requests: loading, ready, and in the end draining."""

from __future__ import annotations

from typing import NamedTuple

LOADING, READY, DRAINING = "loading", "ready", "draining"


class ReadinessStatus(NamedTuple):
    state: str
    reason: str = ""


class Readiness:
    """Set from any thread: a status is replaced whole."""

    def __init__(self, loaded: bool = False) -> None:
        self._model = ReadinessStatus(READY) if loaded else ReadinessStatus(LOADING, "the model is not loaded yet")
        self._leaving: ReadinessStatus | None = None

    @property
    def status(self) -> ReadinessStatus:
        return self._leaving or self._model

    def ready(self) -> None:
        self._model = ReadinessStatus(READY)

    def loading(self, reason: str) -> None:
        self._model = ReadinessStatus(LOADING, reason)

    def drain(self, reason: str) -> None:
        """Only `reset` ends it."""
        self._leaving = ReadinessStatus(DRAINING, reason)

    def reset(self) -> None:
        self._leaving = None

    @property
    def serves(self) -> bool:
        """Also while draining, if it was ready: a gateway may not know yet."""
        return self._model.state == READY
