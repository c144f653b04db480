"""Reservations of dead workers: their requests may still run, so these count for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...link.shared_ledger import SharedLedger

MIN_HOLD_SECONDS, MAX_HOLD_SECONDS = 1.0, 60.0


class OrphanedReservation(NamedTuple):
    column: int  # -1: none, only the number of requests
    device: int
    amount: int
    requests: int
    until: float


class OrphanedReservations:
    def __init__(self, ledger: SharedLedger) -> None:
        self._ledger = ledger
        self._kept: list[OrphanedReservation] = []
        self._successor_due = False  # until then nothing ends: requests of a dead balancer process run on

    def worker_exited(self, row: int, device_of: Mapping[int, int], now: float, *, adoptable: bool = False) -> int:
        """Returns the bytes it had. `adoptable`: a successor will say which of its requests run on."""
        self._successor_due = self._successor_due or adoptable
        left = self._ledger.retire(row, dict(device_of))
        last: dict[int, float] = {}  # by device: its requests are over when the last bytes are
        for column, device, amount, requests, until in left:
            until = min(max(until, now + MIN_HOLD_SECONDS), now + MAX_HOLD_SECONDS)
            if column >= 0:
                last[device] = max(until, last.get(device, 0.0))
            else:
                until = last.get(device, until)
            self._kept.append(OrphanedReservation(column, device, amount, requests, until))
        return sum(amount for _, _, amount, _, _ in left)

    def adopted(self, reservations: Iterable[tuple[int, int, int]]) -> None:
        """These (column, device, bytes) count elsewhere now; the others until their time is up."""
        self._successor_due = False
        for column, device, amount in reservations:
            self._release(device, column, amount, 0)
            self._release(device, -1, 0, 1)

    def _release(self, device: int, column: int, amount: int, requests: int) -> None:
        for at, kept in enumerate(self._kept):
            if kept.device != device or kept.column != column or kept.amount < amount or kept.requests < requests:
                continue
            self._ledger.release(column, device, amount, requests)
            self._kept[at] = kept._replace(amount=kept.amount - amount, requests=kept.requests - requests)
            return

    def tick(self, now: float) -> None:
        if self._successor_due:
            return
        for reservation in [reservation for reservation in self._kept if reservation.until <= now]:
            self._ledger.release(reservation.column, reservation.device, reservation.amount, reservation.requests)
        self._kept = [reservation for reservation in self._kept if reservation.until > now]
