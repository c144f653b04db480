"""What is counted of each model, for reports: how requests ended, how long they took, and whether promises were met."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final

from ..core import slo
from ..core.histogram import OFFSET, PER_BUCKET, SIZE, SMALLEST
from ..core.reason import Reason
from ..core.slo import (
    INDEX,
    KINDS,
    NOTHING_PROMISED,
    REFUSED_BY_DEADLINE,
    Promise,
    blame_most,
    judge_answer,
    judge_left,
)
from ..core.times import Times

if TYPE_CHECKING:
    from .exchange import Exchange

OK, CLIENT_ERROR, FAILED, REFUSED, CANCELLED = VERDICTS = ("ok", "client_error", "failed", "refused", "cancelled")
DEADLINE: Final = Reason.DEADLINE.code
STATUSES: Final = 32  # HTTP statuses of a model that are counted one by one
TENANTS: Final = 100  # of a model, counted one by one: their names come from clients, who can make up any number
TUNNEL: Final = 101
OTHERS: Final = "*"  # all the rest together


class Tally:
    """Requests of one tenant by how they stand to what it is promised."""

    __slots__ = ("counts", "promise")

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.counts = [0] * KINDS


class Account:
    __slots__ = (
        "buckets",
        "cancelled",
        "client_error",
        "failed",
        "first_byte",
        "looks",
        "ok",
        "others",
        "promise",
        "queue",
        "refused",
        "replica",
        "statuses",
        "tallies",
        "total",
    )

    def __init__(self) -> None:
        self.ok = 0
        self.client_error = 0
        self.failed = 0
        self.refused = 0
        self.cancelled = 0
        self.looks = 0  # of all these, requests that only look (gateway/looks.py)
        self.statuses: dict[int, int] = {}  # requests by HTTP status other than 200; 0: there was no answer
        self.buckets: dict[int, int] = {}  # of core.histogram; only those that were hit
        self.total = Times()  # of answered requests: all of it, …
        self.replica = Times()  # … the part at the replica, …
        self.first_byte = Times()  # … and the part before its first byte came
        self.queue = Times()  # of all that were sent or refused: the wait before that
        self.promise = NOTHING_PROMISED
        self.others: dict[str, Promise] = {}  # tenant → what it is promised, where that is something else
        self.tallies: dict[str, Tally] = {}

    def promises(self, promise: Promise, others: dict[str, Promise]) -> None:
        """What holds from now on."""
        self.promise = promise
        self.others = others
        for tenant, tally in self.tallies.items():
            tally.promise = others.get(tenant, promise)

    def answered(self, seconds: float) -> None:
        self.ok += 1
        index = int(log(seconds) * PER_BUCKET + OFFSET) if seconds > SMALLEST else 0
        if index >= SIZE:
            index = SIZE - 1
        buckets = self.buckets
        buckets[index] = buckets.get(index, 0) + 1

    def count(self, verdict: str) -> None:
        setattr(self, verdict, getattr(self, verdict) + 1)

    def count_status(self, status: int) -> None:
        """Anything but 200: the others are 200, and cost nothing to count."""
        if status not in self.statuses and len(self.statuses) >= STATUSES:
            status = status // 100  # a replica may make up as many as it likes: the rest is counted by class
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def by_status(self) -> dict[int, int]:
        ended = self.ok + self.client_error + self.failed + self.refused + self.cancelled
        return {200: ended - sum(self.statuses.values()), **self.statuses}

    def verdicts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in VERDICTS}

    def judge(self, exchange: Exchange, verdict: str, now: float, reason: str) -> int:
        """Count a request that is over by how it stands to what was promised: the index of its judgement. `reason`: the
        code of a refusal."""
        tally = self.tallies.get(exchange.tenant)
        if tally is None:
            tally = self._tally(exchange.tenant)
        began = exchange.began
        arrived = exchange.arrived or now
        sent = exchange.dispatched
        total = now - began
        upload = arrived - began + exchange.delayed
        unread = exchange.unread
        queue = (sent or now) - arrived
        if sent or verdict == REFUSED:
            self.queue.add(queue)
        if verdict == OK:
            first = exchange.first_byte - began
            if exchange.status == TUNNEL:
                total, unread = first, 0.0  # how long it stays open is up to those who talk through it
            self.total.add(total)
            self.first_byte.add(first)
            self.replica.add(began + total - sent)
            index = judge_answer(tally.promise, upload, queue, first, total, exchange.streamed, unread)
        elif verdict == CANCELLED:
            said = exchange.first_byte > 0.0 and (exchange.bytes_out > 0 or not exchange.streamed)
            first = exchange.first_byte - began if said else -1.0
            index = judge_left(tally.promise, upload, queue, first, total, exchange.streamed, unread)
        else:
            fault = _fault(exchange, upload, queue, total)
            index = INDEX[_verdict(verdict, exchange), fault]
            if verdict == REFUSED and reason == DEADLINE:
                index = REFUSED_BY_DEADLINE.get((fault, exchange.judged_by), index)
        tally.counts[index] += 1
        return index

    def _tally(self, tenant: str) -> Tally:
        if len(self.tallies) >= TENANTS and tenant not in self.others:
            tenant = OTHERS
            if tenant in self.tallies:
                return self.tallies[tenant]
        tally = self.tallies[tenant] = Tally(self.others.get(tenant, self.promise))
        return tally


def _verdict(verdict: str, exchange: Exchange) -> str:
    """An error of the client's is a failure if a replica found it, and a refusal if we did."""
    if verdict == REFUSED or (verdict == CLIENT_ERROR and not exchange.dispatched):
        return slo.REFUSED
    return slo.FAILED


def _fault(exchange: Exchange, upload: float, queue: float, total: float) -> str:
    if exchange.fault == slo.LATE:  # its deadline passed
        return blame_most(upload, queue, total)
    if exchange.fault:
        return exchange.fault
    if exchange.status == 429:
        return slo.OVERLOAD
    return slo.CLIENT if exchange.status < 500 else slo.REPLICA
