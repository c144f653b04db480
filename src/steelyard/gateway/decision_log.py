"""The decision log: why requests went where they went, a line for each that is sampled (link/decision_lines.py).

A request that is not sampled costs a checksum of its id. Of one that is, a snapshot is taken whenever a place is looked
for; its line is made when it is over, in small batches, and written by a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import blake2b
from heapq import nsmallest
from math import isfinite
from time import monotonic, time
from typing import Any, Final
from zlib import crc32

import msgspec

from ..config import Config
from ..config import DecisionLog as Settings
from ..core.balancer import Balancer
from ..core.options import PoolOptions
from ..core.policies import POLICIES, Policy
from ..core.pool import Pool
from ..core.replica import Replica, State
from ..core.request import INFINITY, Phase, Request
from ..core.slo import JUDGEMENTS
from ..documents import encode_value
from ..link.decision_lines import Attempt, Candidate, DecisionLine, Excluded, FleetLine, Look, Member
from . import accounts
from .exchange import Exchange
from .line_file import LineFile

LOOKS: Final = 8  # most that are kept of a request: the first, and the last ones
AGAIN: Final = 0.1  # seconds after which a look that ends in waiting is worth another snapshot
COMPARED: Final = 128  # most replicas whose score is worked out, evenly spread over all
ALL: Final = 1 << 32  # checksums there are
DIGITS: Final = 6  # of seconds
OWN_FIELD: Final = ("concurrency", "queue", "max_wait")  # of a fleet's line
STOPPED: Final = "cancelled"
LOST: Final = "lost"  # of a hedged request's attempts, the slower
NAMES: Final = {place: name for name, place in POLICIES.items()}


class Noted:
    """What is kept of a request until it is over."""

    __slots__ = ("arrived", "attempts", "estimate", "looked", "looked_at", "looks")

    def __init__(self, now: float) -> None:
        self.arrived = now
        self.estimate: float | None = None
        self.looked = 0
        self.looked_at = -INFINITY
        self.looks: list[Look] = []
        self.attempts: list[Try] = []


class Try:
    __slots__ = ("began", "beside", "ended", "hedged", "outcome", "predicted", "replica")

    def __init__(self, replica: Replica, began: float, predicted: float, beside: int, hedged: bool) -> None:
        self.replica = replica
        self.began = began
        self.predicted = predicted
        self.beside = beside
        self.hedged = hedged
        self.ended: float | None = None
        self.outcome: str | None = None  # None: it runs


class DecisionLog(LineFile):
    def __init__(
        self, settings: Settings, balancer: Balancer, config: Config, worker: int = 0, workers: int = 1
    ) -> None:
        super().__init__(settings.path, "decision-log", settings.most)
        self.settings = settings
        self.balancer = balancer
        self.config = config
        self._worker = worker
        self._workers = workers
        self._below = int(settings.sample * ALL)
        self._encoder = msgspec.json.Encoder(enc_hook=encode_value)  # options may be Seconds and Shares
        self._fleet: dict[str, tuple[object, ...]] = {}  # model → how it was when that was last written
        self._told_fleet: dict[str, bytes] = {}

    def watch(self) -> None:
        """From now on this log is told of choices."""
        self.balancer.witness = self.witness

    # ------------------------------------------------------------------ a request

    def arrived(self, exchange: Exchange, now: float) -> None:
        """It is about to be decided on: is it one to be written down? By its id, so that whoever sees it agrees."""
        if crc32(exchange.request_id) < self._below and not exchange.route.look:
            exchange.noted = Noted(now)

    def witness(
        self, pool: Pool, request: Request, candidates: Sequence[Replica], chosen: Replica | None, now: float
    ) -> None:
        """A place was looked for, and found or not."""
        noted: Noted = request.noted
        if noted.estimate is None:
            noted.estimate = request.base
        noted.looked += 1
        if chosen is None and now < noted.looked_at + AGAIN:
            return  # one in line is looked at again and again
        noted.looked_at = now
        self._look(noted, pool, request, candidates, chosen, now)

    def placeless(self, exchange: Exchange, now: float) -> None:
        """It was not sent when it came. If no replica could take it, nothing was chosen, and no witness called."""
        noted: Noted = exchange.noted
        if exchange.pool is not None and not noted.looks:
            self._look(noted, exchange.pool, exchange, (), None, now)

    def _look(
        self,
        noted: Noted,
        pool: Pool,
        request: Request,
        candidates: Sequence[Replica],
        chosen: Replica | None,
        now: float,
    ) -> None:
        if len(noted.looks) >= LOOKS:
            del noted.looks[1]
        left_out = [replica for replica in pool.replicas.values() if replica not in candidates]
        noted.looks.append(
            Look(
                after=round(now - noted.arrived, DIGITS),
                chosen=chosen.id if chosen is not None else "",
                of=len(candidates),
                candidates=self._snapshot(pool, request, candidates, chosen, now),
                waiting=len(pool.line),
                excluded=tuple(
                    _excluded(pool, request, replica, now) for replica in left_out[: self.settings.candidates]
                ),
                excluded_of=len(left_out),
            )
        )

    def _snapshot(
        self, pool: Pool, request: Request, candidates: Sequence[Replica], chosen: Replica | None, now: float
    ) -> tuple[Candidate, ...]:
        most = self.settings.candidates
        some = candidates[:: 1 + len(candidates) // COMPARED]
        if chosen is not None and chosen not in some:
            some = [chosen, *some]
        policy = pool.policy
        scored = [(_score(policy, request, replica, now), replica) for replica in some]
        if len(scored) > most:
            scored = nsmallest(most, scored, key=lambda pair: (pair[1] is not chosen, _least_first(pair[0])))
        return tuple(_candidate(pool, request, replica, score, now) for score, replica in scored)

    def sent(self, exchange: Exchange, replica: Replica, now: float, hedged: bool) -> None:
        """An attempt begins; `exchange.flight` (or `.hedge`) is it."""
        noted: Noted = exchange.noted
        flight = exchange.hedge if hedged else exchange.flight
        if noted.estimate is None:
            noted.estimate = exchange.base
        if flight is not None:
            noted.attempts.append(Try(replica, now, flight.predicted, flight.concurrency - 1, hedged))

    def lost(self, exchange: Exchange, replica: Replica, outcome: str, now: float) -> None:
        """An attempt ended, and it is not the one that answered."""
        for attempt in exchange.noted.attempts:
            if attempt.replica is replica and attempt.outcome is None:
                attempt.outcome = outcome
                attempt.ended = None if outcome in (LOST, STOPPED) else now

    def ended(self, exchange: Exchange, verdict: str, reason: str, now: float) -> None:
        """The request is over; `exchange.judgement` is set."""
        noted: Noted = exchange.noted
        exchange.noted = None
        outcome = _last_outcome(exchange, verdict, reason)
        for attempt in noted.attempts:
            if attempt.outcome is None:
                attempt.outcome = outcome
                attempt.ended = None if outcome in (STOPPED, "late") else now
        pool = exchange.pool
        self._note((noted, exchange, reason, _policy_name(pool.policy) if pool is not None else "", now))

    # ------------------------------------------------------------------ lines

    def _lines(self, notes: list[tuple[Any, ...]]) -> None:
        offset = time() - monotonic()
        for noted, exchange, reason, policy, now in notes:
            self._append(self._encoder.encode(self._line(noted, exchange, reason, policy, now, offset)))

    def _line(
        self, noted: Noted, exchange: Exchange, reason: str, policy: str, now: float, offset: float
    ) -> DecisionLine:
        at = noted.arrived
        verdict, fault = JUDGEMENTS[exchange.judgement]
        attempts = noted.attempts
        return DecisionLine(
            id=exchange.request_id.decode("latin-1"),
            time=_clock(at + offset),
            at=round(at, DIGITS),
            worker=self._worker,
            model=exchange.model,
            policy=policy,
            verdict=verdict,
            seconds=_since(at, now),
            estimate=round(exchange.base if noted.estimate is None else noted.estimate, DIGITS),
            tenant=exchange.tenant,
            fault=fault,
            reason=reason,
            status=exchange.status,
            call=exchange.kind,
            features=tuple(x if isfinite(x) else 0.0 for x in exchange.features),
            key=_hash(exchange.key) if exchange.key is not None else "",
            priority=exchange.priority,
            deadline=_since(at, exchange.deadline) if exchange.deadline < INFINITY else None,
            first_byte_deadline=_since(at, exchange.first_byte_by) if exchange.first_byte_by < INFINITY else None,
            judged_by=exchange.judged_by,
            expected=round(exchange.expected, DIGITS),
            idempotent=exchange.idempotent,
            waited=_since(at, attempts[0].began if attempts else now),
            first_byte=_since(at, exchange.first_byte) if exchange.first_byte else 0.0,
            upload=_since(exchange.began, at),
            looks=tuple(noted.looks),
            looked=noted.looked,
            attempts=tuple(
                Attempt(
                    replica=attempt.replica.id,
                    after=_since(at, attempt.began),
                    predicted=round(attempt.predicted, DIGITS),
                    beside=attempt.beside,
                    seconds=_since(attempt.began, attempt.ended) if attempt.ended is not None else None,
                    hedged=attempt.hedged,
                    outcome=attempt.outcome or "",
                )
                for attempt in attempts
            ),
            dropped=self._tell_dropped(),
        )

    # ------------------------------------------------------------------ the fleet

    def flush(self) -> None:
        """A few times a second."""
        self._tell_fleet()
        super().flush()

    def close(self, patience: float = 5.0) -> None:
        if self.balancer.witness == self.witness:
            self.balancer.witness = None
        super().close(patience)

    def _tell_fleet(self) -> None:
        now = monotonic()
        changed = False
        for model in self.balancer.models:
            pool = self.balancer.pool(model)
            replicas = tuple((r.id, r.state, r.weight) for r in pool.replicas.values())
            stands = (replicas, type(pool.policy), pool.options)
            if self._fleet.get(model) != stands:
                self._fleet[model] = stands
                line = self._encoder.encode(self._fleet_line(model, pool, now))
                self._told_fleet[model] = line + b"\n"
                self._append(line)
                changed = True
        if len(self._fleet) > len(self.balancer.models):
            for model in self._fleet.keys() - {*self.balancer.models}:
                del self._fleet[model], self._told_fleet[model]
                changed = True
        if changed:
            self._preface = b"".join(self._told_fleet.values())

    def _fleet_line(self, model: str, pool: Pool, now: float) -> FleetLine:
        settings = self.config.models.get(model)
        options = pool.options
        return FleetLine(
            time=_clock(now + time() - monotonic()),
            at=round(now, DIGITS),
            worker=self._worker,
            workers=self._workers,
            model=model,
            policy=_policy_name(pool.policy),
            sample=float(self.settings.sample),
            replicas=tuple(Member(r.id, r.state.value, r.weight) for r in pool.replicas.values()),
            policy_options=dict(settings.policy_options) if settings is not None else {},
            concurrency=options.concurrency,
            queue=options.queue,
            max_wait=float(options.max_wait),
            options=_told_options(options),
            dropped=self._tell_dropped(),
        )


def _told_options(options: PoolOptions) -> dict[str, object]:
    """Those that have no field of their own and are not as by default."""
    usual = asdict(PoolOptions())
    return {name: value for name, value in asdict(options).items() if name not in OWN_FIELD and value != usual[name]}


def _last_outcome(exchange: Exchange, verdict: str, reason: str) -> str:
    """Of the attempts that still ran when the request was over; empty: it answered."""
    if verdict == accounts.CANCELLED or exchange.status == 101:
        return STOPPED
    if not reason:
        return "client_error" if 400 <= exchange.status < 500 else ""
    return "late" if reason == "deadline" else reason


def _score(policy: Policy, request: Request, replica: Replica, now: float) -> float | None:
    try:
        score = policy.score(request, replica, now)
        score = None if score is None else round(float(score), DIGITS)  # it may be another kind of number
    except Exception:  # a policy of the user's own; the choice is made, and stands
        return None
    return score if score is not None and isfinite(score) else None


def _least_first(score: float | None) -> float:
    return INFINITY if score is None else score


def _candidate(pool: Pool, request: Request, replica: Replica, score: float | None, now: float) -> Candidate:
    estimator = pool.estimator
    in_the_way = estimator.in_the_way(replica, now) if replica.load else 0.0
    return Candidate(
        id=replica.id,
        in_flight=replica.load,
        work=round(replica.work, DIGITS),
        slowness=round(replica.slowness, 4),
        expected=round(request.base * replica.slowness + in_the_way, DIGITS),
        weight=replica.share,
        score=score,
        failures=replica.strikes,
    )


def _excluded(pool: Pool, request: Request, replica: Replica, now: float) -> Excluded:
    if replica not in pool.members:
        return Excluded(replica.id, replica.state.value, _sentence(replica, now))
    if request.avoid and replica in request.avoid:
        return Excluded(replica.id, "failed_before")
    if replica.load >= replica.limit:
        return Excluded(replica.id, "full", f"{replica.load} of {replica.limit:g}")
    if request.judged_by and request.phase is Phase.DONE:  # refused when it came, before memory was looked at
        return Excluded(replica.id, "deadline")
    return Excluded(replica.id, "memory", replica.place.device.name if replica.place is not None else "")


def _sentence(replica: Replica, now: float) -> str:
    """Why an ejected replica is out, and for how long."""
    left = replica.ejected_until - now if replica.state is State.EJECTED else 0.0
    if left <= 0.0:
        return ""
    return f"{replica.ejection}; {left:.0f} s more" if replica.ejection is not None else f"{left:.0f} s more"


def _policy_name(policy: Policy) -> str:
    """As the configuration names it."""
    kind = type(policy)
    place = f"{kind.__module__}:{kind.__qualname__}"
    return NAMES.get(place, place)


def _hash(key: str) -> str:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, person=b"steelyard").hexdigest()


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _since(start: float, end: float) -> float:
    return round(max(0.0, end - start), DIGITS)
