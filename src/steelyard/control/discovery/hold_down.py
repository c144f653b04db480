"""Additions apply at once, mass removals after a hold-down: probes detect a replica too many, one too few is capacity
lost."""

from __future__ import annotations

from collections.abc import Iterable

from ...config import ReplicaConfig
from ...units import format_seconds


class HoldDown:
    """The replicas of one source that are in force. Pure."""

    def __init__(self) -> None:
        self.replicas: tuple[ReplicaConfig, ...] = ()
        self.problem = ""  # why the last poll failed or is not applied, in words
        self.last_success_at: float | None = None  # of the last poll that named replicas
        self._missing: dict[str, float] = {}  # in force, but no longer named: since when
        self._interrupted = False  # by a failed poll

    @property
    def held_back(self) -> tuple[str, ...]:
        return tuple(self._missing)

    def next_removal_at(self, hold: float) -> float | None:
        """When the next held-back removal would apply; None: there is none."""
        return min(self._missing.values()) + hold if self._missing else None

    def poll_failed(self, reason: str) -> None:
        """All stays as it is, and hold-downs start over."""
        self._interrupted = True
        count = len(self.replicas)
        kept = f"the {count} known from before are kept" if count else "none are known from before"
        self.problem = f"{reason}; {kept}"

    def poll_succeeded(self, replicas: Iterable[ReplicaConfig], now: float, hold: float, note: str = "") -> bool:
        """False: it names no replicas, which is not applied."""
        named = {replica.name: replica for replica in replicas}
        if not named:
            self.poll_failed("; ".join(filter(None, ["it names no replicas", note])))
            return False
        self.last_success_at = now
        kept = self._kept(named, now, hold)
        self.replicas = (*named.values(), *kept)
        self.problem = "; ".join(filter(None, [self._held(hold), note]))
        return True

    def _kept(self, named: dict[str, ReplicaConfig], now: float, hold: float) -> list[ReplicaConfig]:
        urls = {replica.url for replica in named.values()}  # under another name, it is not lost
        lost = [replica for replica in self.replicas if replica.name not in named and replica.url not in urls]
        sudden = len(self.replicas) >= 2 and 2 * len(lost) > len(self.replicas)
        before = dict.fromkeys(self._missing, now) if self._interrupted else self._missing
        since = {r.name: before.get(r.name, now) for r in lost if sudden or r.name in before}
        self._missing = {name: start for name, start in since.items() if now - start < hold}
        self._interrupted = False
        return [replica for replica in lost if replica.name in self._missing]

    def _held(self, hold: float) -> str:
        if not self._missing:
            return ""
        count = f"{len(self._missing)} of {len(self.replicas)} replicas"
        return f"it no longer names {count}, which are kept until it has not named them for {format_seconds(hold)}"
