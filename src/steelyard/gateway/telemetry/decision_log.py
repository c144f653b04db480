"""The decision log: why sampled requests went where they went, a line each (link/decision_log/lines.py).

A request that is not sampled costs a checksum of its id. Of one that is, each choice takes a snapshot; its line is made
when it is over, in small batches, and written by a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import blake2b
from math import isfinite
from time import monotonic, time
from typing import Any, Final
from zlib import crc32

import msgspec

from ...config import Config, DecisionLogConfig
from ...core.balancer import Balancer
from ...core.options import PoolOptions
from ...core.policies import POLICIES, Policy
from ...core.pool import Pool
from ...core.replica import Replica
from ...core.request import INFINITY
from ...core.slo.verdicts import SLO_VERDICTS
from ...documents import encode_value
from ...link.decision_log.lines import (
    DecisionLine,
    FleetLine,
    FleetMember,
    LoggedAttempt,
)
from ..exchange import Exchange
from . import model_stats
from .choices import SECONDS_DIGITS, ChoiceRecord, ChoiceRecorder
from .log_file import LogFile

CHECKSUM_COUNT: Final = 1 << 32
FLEET_LINE_OPTIONS: Final = ("concurrency", "max_queue", "queue_timeout")  # with fields of their own
ATTEMPT_CANCELLED: Final = "cancelled"
ATTEMPT_LOST: Final = "lost"  # of a hedged request's attempts, the slower
POLICY_NAMES: Final = {place: name for name, place in POLICIES.items()}


class DecisionRecord(ChoiceRecord):
    __slots__ = ("attempts",)

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.attempts: list[AttemptRecord] = []


class AttemptRecord:
    __slots__ = ("began", "concurrent", "ended", "hedged", "outcome", "predicted", "replica")

    def __init__(self, replica: Replica, began: float, predicted: float, beside: int, hedged: bool) -> None:
        self.replica = replica
        self.began = began
        self.predicted = predicted
        self.concurrent = beside
        self.hedged = hedged
        self.ended: float | None = None
        self.outcome: str | None = None  # None: it runs


class DecisionLog(LogFile):
    def __init__(
        self,
        settings: DecisionLogConfig,
        balancer: Balancer,
        config: Config,
        worker: int = 0,
        workers: int = 1,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(settings.path, "decision-log", settings.max_size, clock)
        self.settings = settings
        self.balancer = balancer
        self.config = config
        self._choices = ChoiceRecorder(settings.max_candidates)
        self._worker = worker
        self._workers = workers
        self._sample_threshold = int(settings.sample_rate * CHECKSUM_COUNT)
        self._encoder = msgspec.json.Encoder(enc_hook=encode_value)  # options may be Seconds and Shares
        self._logged_fleet: dict[str, tuple[object, ...]] = {}  # model → what was last written of it
        self._fleet_lines: dict[str, bytes] = {}

    def attach(self) -> None:
        """Where a balancer process decides, it records the choices, and this is not called."""
        self.balancer.on_choice = self._choices.on_choice

    def arrived(self, exchange: Exchange, now: float) -> None:
        """Samples by the id of the request: all that see it agree."""
        if crc32(exchange.request_id) < self._sample_threshold and not exchange.route.health_request:
            exchange.choice_trace = DecisionRecord(now)

    def not_placed(self, exchange: Exchange, now: float) -> None:
        self._choices.not_placed(exchange, now)

    def dispatched(self, exchange: Exchange, replica: Replica, now: float, hedged: bool) -> None:
        noted: DecisionRecord = exchange.choice_trace
        running = exchange.hedge if hedged else exchange.attempt
        if noted.estimate is None:
            noted.estimate = exchange.base
        if running is not None:
            noted.attempts.append(AttemptRecord(replica, now, running.predicted, running.concurrency - 1, hedged))

    def attempt_lost(self, exchange: Exchange, replica: Replica, outcome: str, now: float) -> None:
        for attempt in exchange.choice_trace.attempts:
            if attempt.replica is replica and attempt.outcome is None:
                attempt.outcome = outcome
                attempt.ended = None if outcome in (ATTEMPT_LOST, ATTEMPT_CANCELLED) else now

    def finished(self, exchange: Exchange, outcome: str, reason: str, now: float) -> None:
        noted: DecisionRecord = exchange.choice_trace
        exchange.choice_trace = None
        last_outcome = _last_outcome(exchange, outcome, reason)
        for attempt in noted.attempts:
            if attempt.outcome is None:
                attempt.outcome = last_outcome
                attempt.ended = None if last_outcome in (ATTEMPT_CANCELLED, "deadline_exceeded") else now
        pool = exchange.pool
        self._note((noted, exchange, reason, pool.policy if pool is not None else None, now))

    def _lines(self, notes: list[tuple[Any, ...]]) -> None:
        offset = time() - self._clock()
        for noted, exchange, reason, policy, now in notes:
            self._append(self._encoder.encode(self._line(noted, exchange, reason, policy, now, offset)))

    def _line(
        self, noted: DecisionRecord, exchange: Exchange, reason: str, policy: Policy | None, now: float, offset: float
    ) -> DecisionLine:
        at = noted.arrived
        verdict, fault = SLO_VERDICTS[exchange.slo_verdict]
        attempts = noted.attempts
        prompt, usage = exchange.prompt, exchange.usage
        return DecisionLine(
            id=exchange.request_id.decode("latin-1"),
            time=_iso_time(at + offset),
            at=round(at, SECONDS_DIGITS),
            worker=self._worker,
            model=exchange.model,
            policy=_policy_name(policy) if policy is not None else "",
            verdict=verdict,
            seconds=_seconds_between(at, now),
            estimate=round(exchange.base if noted.estimate is None else noted.estimate, SECONDS_DIGITS),
            tenant=exchange.tenant,
            fault=fault,
            reason=reason,
            status=exchange.status,
            call=exchange.kind,
            features=tuple(x if isfinite(x) else 0.0 for x in exchange.features),
            key=_hash(exchange.key) if exchange.key is not None else "",
            priority=exchange.priority,
            deadline=_seconds_until(at, exchange.deadline),
            first_byte_deadline=_seconds_until(at, exchange.first_byte_by),
            binding_deadline=exchange.binding_deadline,
            expected=round(exchange.predicted_seconds, SECONDS_DIGITS),
            idempotent=exchange.idempotent,
            waited=_seconds_between(at, attempts[0].began if attempts else now),
            first_byte=_seconds_between(at, exchange.first_byte) if exchange.first_byte else 0.0,
            upload=_seconds_between(exchange.started_at, at),
            choices=tuple(noted.choices),
            choice_count=noted.choice_count,
            attempts=tuple(
                LoggedAttempt(
                    replica=attempt.replica.id,
                    after=_seconds_between(at, attempt.began),
                    predicted=round(attempt.predicted, SECONDS_DIGITS),
                    concurrent=attempt.concurrent,
                    seconds=_seconds_between(attempt.began, attempt.ended) if attempt.ended is not None else None,
                    hedged=attempt.hedged,
                    outcome=attempt.outcome or "",
                )
                for attempt in attempts
            ),
            prompt_bytes=prompt.text_bytes if prompt is not None else 0,
            prompt_extra_tokens=prompt.extra_tokens if prompt is not None else 0.0,
            prompt_tokens=usage.prompt if usage is not None else 0,
            output_tokens=usage.output if usage is not None else 0,
            cached_tokens=usage.cached if usage is not None else 0,
            score_meaning=_own_score_meaning(policy),
            dropped=self._take_dropped(),
        )

    def flush(self) -> None:
        self._log_fleet()
        super().flush()

    def close(self, timeout: float = 5.0) -> None:
        if self.balancer.on_choice == self._choices.on_choice:
            self.balancer.on_choice = None
        super().close(timeout)

    def _log_fleet(self) -> None:
        now = self._clock()
        changed = False
        for model in self.balancer.models:
            pool = self.balancer.pool(model)
            replicas = tuple((r.id, r.state, r.weight) for r in pool.replicas.values())
            stands = (replicas, type(pool.policy), pool.options)
            if self._logged_fleet.get(model) != stands:
                self._logged_fleet[model] = stands
                line = self._encoder.encode(self._fleet_line(model, pool, now))
                self._fleet_lines[model] = line + b"\n"
                self._append(line)
                changed = True
        if len(self._logged_fleet) > len(self.balancer.models):
            for model in self._logged_fleet.keys() - {*self.balancer.models}:
                del self._logged_fleet[model], self._fleet_lines[model]
                changed = True
        if changed:
            self.preface = b"".join(self._fleet_lines.values())

    def _fleet_line(self, model: str, pool: Pool, now: float) -> FleetLine:
        settings = self.config.models.get(model)
        options = pool.options
        return FleetLine(
            time=_iso_time(now + time() - self._clock()),
            at=round(now, SECONDS_DIGITS),
            worker=self._worker,
            workers=self._workers,
            model=model,
            policy=_policy_name(pool.policy),
            sample_rate=float(self.settings.sample_rate),
            replicas=tuple(FleetMember(r.id, r.state.value, r.weight) for r in pool.replicas.values()),
            policy_options=dict(settings.policy_options) if settings is not None else {},
            concurrency=options.concurrency,
            max_queue=options.max_queue,
            queue_timeout=float(options.queue_timeout),
            options=_changed_options(options),
            dropped=self._take_dropped(),
        )


def _changed_options(options: PoolOptions) -> dict[str, object]:
    """Those without a field of their own that are not the default."""
    usual = asdict(PoolOptions())
    return {
        name: value
        for name, value in asdict(options).items()
        if name not in FLEET_LINE_OPTIONS and value != usual[name]
    }


def _last_outcome(exchange: Exchange, outcome: str, reason: str) -> str:
    """Of attempts that ran until the request was over; empty: it answered."""
    if outcome == model_stats.CANCELLED or exchange.status == 101:
        return ATTEMPT_CANCELLED
    if not reason:
        return "client_error" if 400 <= exchange.status < 500 else ""
    return "deadline_exceeded" if reason == "deadline" else reason


def _policy_name(policy: Policy) -> str:
    kind = type(policy)
    place = f"{kind.__module__}:{kind.__qualname__}"
    return POLICY_NAMES.get(place, place)


def _own_score_meaning(policy: Policy | None) -> str:
    if policy is None or _policy_name(policy) in POLICIES or type(policy).score is Policy.score:
        return ""
    return policy.score_meaning


def _hash(key: str) -> str:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, person=b"steelyard").hexdigest()


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _seconds_between(start: float, end: float) -> float:
    return round(max(0.0, end - start), SECONDS_DIGITS)


def _seconds_until(start: float, deadline: float) -> float | None:
    return _seconds_between(start, deadline) if deadline < INFINITY else None
