"""Whether this replica wants requests: loading until the model says otherwise, ready, and in the end draining."""

from __future__ import annotations

from typing import NamedTuple

LOADING, READY, DRAINING = "loading", "ready", "draining"


class ReadinessStatus(NamedTuple):
    state: str
    reason: str = ""


class Readiness:
    """Set from any thread: what is told is one value, put in place at once."""

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
        """There is no way back but to begin anew."""
        self._leaving = ReadinessStatus(DRAINING, reason)

    def reset(self) -> None:
        self._leaving = None

    @property
    def serves(self) -> bool:
        """While draining too: a gateway may not have heard of it yet. Not if there was no model to begin with."""
        return self._model.state == READY
