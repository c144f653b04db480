"""Counts of each model, for reports: how requests ended, how long they took, and whether SLOs were met."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Final

from ...core.prompt import TokenUsage
from ...core.reason import Reason
from ...core.request import INFINITY
from ...core.slo import verdicts
from ...core.slo.verdicts import (
    ABANDONED_INDEX,
    MAX_TENANTS,
    MET_INDEX,
    NO_SLO,
    OTHER_TENANTS,
    REFUSED_BY_DEADLINE,
    VERDICT_COUNT,
    VERDICT_INDEX,
    SloTarget,
    attribute_longest_stage,
    verdict_of,
)
from ...core.statistics.histogram import BUCKET_COUNT, BUCKET_OFFSET, BUCKETS_PER_LN, MIN_BUCKET_SECONDS, DurationCounts
from .token_stats import TokenStats, further_seconds, further_tokens, seconds_per_token

if TYPE_CHECKING:
    from ..exchange import Exchange

OK, CLIENT_ERROR, FAILED, REFUSED, CANCELLED = OUTCOMES = ("ok", "client_error", "failed", "refused", "cancelled")
DEADLINE_CODE: Final = Reason.DEADLINE.code
MAX_STATUSES: Final = 32  # HTTP statuses of a model that are counted one by one
SWITCHING_PROTOCOLS: Final = 101


class TenantStats:
    __slots__ = ("counts", "target")

    def __init__(self, target: SloTarget) -> None:
        self.target = target
        self.counts = [0] * VERDICT_COUNT


class ModelStats:
    def __init__(self) -> None:
        self.ok = 0
        self.client_error = 0
        self.failed = 0
        self.refused = 0
        self.cancelled = 0
        self.health_requests = 0  # of all these, probes and scrapes (gateway/routing/router.py)
        self.statuses: dict[int, int] = {}  # by HTTP status other than 200; 0: there was no answer
        self.latency_buckets: dict[int, int] = {}  # of core/statistics/histogram.py
        self.total = DurationCounts()  # of answered requests
        self.replica = DurationCounts()  # the part at the replica
        self.first_byte = DurationCounts()  # the part before the first byte
        self.queue = DurationCounts()  # of all that were sent or refused: the wait before that
        self.tokens = TokenStats()
        self.first_token = DurationCounts()  # of answers that streamed tokens, from their head …
        self.per_token = DurationCounts()  # … and the mean of each for a token after the first
        self.target = NO_SLO
        self.tenant_targets: dict[str, SloTarget] = {}  # where it differs
        self.tenants: dict[str, TenantStats] = {}

    def set_targets(self, target: SloTarget, others: dict[str, SloTarget]) -> None:
        self.target = target
        self.tenant_targets = others
        for tenant, stats in self.tenants.items():
            stats.target = others.get(tenant, target)

    def count_ok(self, seconds: float) -> None:
        self.ok += 1
        index = int(log(seconds) * BUCKETS_PER_LN + BUCKET_OFFSET) if seconds > MIN_BUCKET_SECONDS else 0
        if index >= BUCKET_COUNT:
            index = BUCKET_COUNT - 1
        buckets = self.latency_buckets
        buckets[index] = buckets.get(index, 0) + 1

    def count_outcome(self, outcome: str) -> None:
        setattr(self, outcome, getattr(self, outcome) + 1)

    def count_status(self, status: int) -> None:
        """Anything but 200: the rest is 200, and costs nothing to count."""
        if status not in self.statuses and len(self.statuses) >= MAX_STATUSES:
            status = status // 100  # replicas may make up any number: the rest is counted by class
        self.statuses[status] = self.statuses.get(status, 0) + 1

    def statuses_with_200(self) -> dict[int, int]:
        ended = self.ok + self.client_error + self.failed + self.refused + self.cancelled
        return {200: ended - sum(self.statuses.values()), **self.statuses}

    def outcomes(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in OUTCOMES}

    def durations(self) -> dict[str, DurationCounts]:
        times = {"total": self.total, "replica": self.replica, "first_byte": self.first_byte, "queue": self.queue}
        if self.tokens.answers:
            times |= {"first_token": self.first_token, "per_token": self.per_token}
        return times

    def record_tokens(self, exchange: Exchange, usage: TokenUsage, outcome: str, now: float) -> None:
        pool = exchange.pool
        replica = pool.replicas.get(exchange.replica_id) if pool is not None else None
        of_replica: TokenStats | None = replica.context.tokens if replica is not None else None
        self.tokens.add(usage)
        if of_replica is not None:
            of_replica.add(usage)
        if outcome != OK or not exchange.length_unknown or not exchange.streams or not usage.output:
            return
        first, further = exchange.first_byte - exchange.started_at, further_tokens(exchange, usage)
        self.first_token.add(first)
        seconds = 0.0
        if further >= 1.0:
            seconds = further_seconds(exchange, now)
            self.per_token.add(seconds / further)
        else:
            further = 0.0
        self.tokens.add_stream(first, further, seconds)
        if of_replica is not None:
            of_replica.add_stream(first, further, seconds)

    def record_slo(self, exchange: Exchange, outcome: str, now: float, reason: str) -> int:
        """Counts a request that is over by its SLO verdict, and returns that. `reason`: the code of a refusal."""
        stats = self.tenants.get(exchange.tenant)
        if stats is None:
            stats = self._tenant_stats(exchange.tenant)
        began = exchange.started_at
        arrived = exchange.arrived or now
        sent = exchange.dispatched_at
        total = now - began
        upload = arrived - began + exchange.upload_wait_seconds
        unread = exchange.write_wait_seconds
        queue = (sent or now) - arrived
        if sent or outcome == REFUSED:
            self.queue.add(queue)
        if outcome == OK:
            first = exchange.first_byte - began
            if exchange.status == SWITCHING_PROTOCOLS:
                total, unread = first, 0.0  # how long a tunnel stays open is up to its two ends
            self.total.add(total)
            self.first_byte.add(first)
            self.replica.add(began + total - sent)
            per_token = 0.0
            if exchange.usage is not None and stats.target.per_token < INFINITY:
                per_token = seconds_per_token(exchange, exchange.usage, 0.0, now)
            streamed = exchange.length_unknown
            index = verdict_of(stats.target, upload, queue, first, total, streamed, unread, MET_INDEX, per_token)
        elif outcome == CANCELLED:
            said = exchange.first_byte > 0.0 and (exchange.bytes_out > 0 or not exchange.length_unknown)
            first = exchange.first_byte - began if said else -1.0
            per_token = 0.0
            if exchange.usage is not None and stats.target.per_token < INFINITY:  # it waited for one more
                per_token = seconds_per_token(exchange, exchange.usage, 1.0, now)
            streamed = exchange.length_unknown
            index = verdict_of(stats.target, upload, queue, first, total, streamed, unread, ABANDONED_INDEX, per_token)
        else:
            fault = _fault(exchange, upload, queue, total)
            index = VERDICT_INDEX[_slo_verdict(outcome, exchange), fault]
            if outcome == REFUSED and reason == DEADLINE_CODE:
                index = REFUSED_BY_DEADLINE.get((fault, exchange.binding_deadline), index)
        stats.counts[index] += 1
        return index

    def _tenant_stats(self, tenant: str) -> TenantStats:
        if len(self.tenants) >= MAX_TENANTS and tenant not in self.tenant_targets:
            tenant = OTHER_TENANTS
            if tenant in self.tenants:
                return self.tenants[tenant]
        stats = self.tenants[tenant] = TenantStats(self.tenant_targets.get(tenant, self.target))
        return stats


def _slo_verdict(outcome: str, exchange: Exchange) -> str:
    """An error of the client's is a failure if a replica found it, and a refusal if we did."""
    if outcome == REFUSED or (outcome == CLIENT_ERROR and not exchange.dispatched_at):
        return verdicts.REFUSED
    return verdicts.FAILED


def _fault(exchange: Exchange, upload: float, queue: float, total: float) -> str:
    if exchange.fault == verdicts.LATE:  # its deadline passed
        return attribute_longest_stage(upload, queue, total)
    if exchange.fault:
        return exchange.fault
    if exchange.status == 429:
        return verdicts.OVERLOAD
    return verdicts.CLIENT if exchange.status < 500 else verdicts.REPLICA
