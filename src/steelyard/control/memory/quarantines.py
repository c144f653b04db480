"""Requests of a size that ran out of memory on a device are kept from it for a while."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from ...link.messages import Quarantine

FIRST_QUARANTINE_SECONDS, MAX_QUARANTINE_SECONDS = 60.0, 3600.0
FORGET_AFTER_SECONDS = 600.0  # after its end: the next is a first again
MAX_QUARANTINES_PER_MODEL = 64
MIN_MESSAGE_SPACING_SECONDS = 0.2  # about the same


@dataclass(slots=True)
class _ActiveQuarantine:
    bytes: int = 0
    seconds: float = 0.0
    until: float = -inf
    sent: bool = False
    sent_at: float = -inf


class Quarantines:
    """One per model and device; twice as long each time it was too short."""

    def __init__(self) -> None:
        self.active: dict[tuple[str, str], _ActiveQuarantine] = {}

    def add(self, model: str, device: str, amount: int, now: float) -> float:
        """Requests that need this amount or more are kept from the device; returns for how many seconds."""
        self._forget(now)
        kept = self.active.get((model, device))
        if kept is None:
            self._make_room(model)
            kept = self.active[model, device] = _ActiveQuarantine()
        if now < kept.until:  # one of those that ran already when it began
            kept.bytes = min(kept.bytes, amount)
        else:
            kept.bytes = amount
            kept.seconds = min(2.0 * kept.seconds, MAX_QUARANTINE_SECONDS) or FIRST_QUARANTINE_SECONDS
        kept.until = now + kept.seconds
        kept.sent = False
        return kept.seconds

    def _make_room(self, model: str) -> None:
        of_model = [key for key in self.active if key[0] == model]
        if len(of_model) >= MAX_QUARANTINES_PER_MODEL:
            del self.active[min(of_model, key=lambda key: self.active[key].until)]

    def _forget(self, now: float) -> None:
        for key, kept in list(self.active.items()):
            if now - kept.until > max(FORGET_AFTER_SECONDS, 2.0 * kept.seconds):
                del self.active[key]

    def keep(self, models: set[str], devices: set[str]) -> None:
        self.active = {key: kept for key, kept in self.active.items() if key[0] in models and key[1] in devices}

    def in_force(self, now: float) -> list[Quarantine]:
        return [message for message, _ in self._in_force(now)]

    def to_send(self, now: float) -> list[Quarantine]:
        found = []
        for message, kept in self._in_force(now):
            if not kept.sent and now - kept.sent_at >= MIN_MESSAGE_SPACING_SECONDS:
                kept.sent, kept.sent_at = True, now
                found.append(message)
        return found

    def _in_force(self, now: float) -> Iterator[tuple[Quarantine, _ActiveQuarantine]]:
        for (model, device), kept in self.active.items():
            if now < kept.until:
                yield Quarantine(model, device, kept.bytes, kept.until - now), kept
