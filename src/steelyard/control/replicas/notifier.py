"""Publishes a model's managed replicas to the fleet, and to workers when the next should be ready."""

from __future__ import annotations

from collections.abc import Iterable

from ...config import ReplicaConfig
from ...link.messages import StartProgress
from ..fleet.observer import FleetControl
from .lifecycle import ReplicaPhase
from .managed_replica import ManagedReplica

MEMBER_PHASES = (ReplicaPhase.STARTING, ReplicaPhase.READY)


class FleetNotifier:
    def __init__(self, model: str, fleet: FleetControl) -> None:
        self._model = model
        self._fleet = fleet
        self._sent: list[ReplicaConfig] = []
        self._expected_at = 0.0  # when the next should be ready

    def publish_members(self, replicas: Iterable[ManagedReplica]) -> None:
        members = [r for r in replicas if r.instance.url and (r.member or r.phase in MEMBER_PHASES)]
        for replica in members:
            replica.member = True
        configs = [replica.settings for replica in members]
        if configs != self._sent:
            self._fleet.set_managed(self._model, configs)
            self._sent = configs

    def forgotten(self) -> None:
        self._sent = []

    def publish_ready_time(self, seconds: float, now: float, *, guessed: bool, failure: str = "") -> None:
        """0.0: none is starting. `failure`: why the last start failed."""
        if seconds > 0.0:
            self._expected_at = now + seconds
            self._fleet.broadcast(StartProgress(self._model, seconds, guessed, failure))

    def withdraw_ready_time(self) -> None:
        self._expected_at = 0.0

    def is_due(self, now: float) -> bool:
        return now >= self._expected_at
