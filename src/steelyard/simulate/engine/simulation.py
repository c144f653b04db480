"""The discrete-event loop: arrivals, completions, the balancers' wake-ups, and a calendar of everything else.

It carries out what `core.Balancer` decides. Arrivals are open loop, and latency counts from the intended send time.
Nothing is kept per request once it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from math import log
from random import Random

from ...core.balancer import Balancer
from ...core.decision import Cancel, Decision, Reject, Send
from ...core.outcome import Outcome
from ...core.prompt import TokenUsage
from ...core.replica import Event, State
from ...core.request import INFINITY, Attempt
from ...core.statistics.histogram import BUCKET_COUNT, BUCKET_OFFSET, BUCKETS_PER_LN, MIN_BUCKET_SECONDS
from ..llm.server import EngineServer
from .job import BackgroundJob, EngineStep, Job, TokenJob
from .result import RunResult
from .servers import Server

ERROR_DELAY_SECONDS = 0.001  # of a failing replica's error, or a refused connection


class Simulation:
    def __init__(
        self,
        servers: Sequence[Server],
        balancers: Sequence[Balancer],
        jobs: Iterable[Job],
        result: RunResult,
        rng: Random,
        *,
        warmup: float = 0.0,
        slo: float = INFINITY,
    ) -> None:
        self.servers = {server.id: server for server in servers}
        self.balancers = list(balancers)
        self.now = 0.0
        self._jobs: Iterator[Job] = iter(jobs)
        self._later: list[tuple[float, int, Job]] = []  # arrivals that follow from an answer
        self.arrival_limit = -1  # no request comes after so many; -1: all do
        self._result = result
        self._rng = rng
        self._warmup = warmup
        self._slo = slo
        self._events: list[tuple[float, int, Job]] = []
        self._calendar: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = count()
        self._ended = 0.0  # of the last request so far
        self._arrivals_left = True
        self.on_request_end: Callable[[Job, bool, float], None] | None = None  # request, answered?, now
        self._draining: dict[str, Callable[[float], None]] = {}  # what to do once a server is idle

    def call_at(self, when: float, action: Callable[[float], None]) -> None:
        heappush(self._calendar, (when, next(self._count), action))

    def submit_at(self, when: float, job: Job) -> None:
        """An arrival beside those it was made with."""
        if self._arrivals_left:
            heappush(self._later, (when, next(self._count), job))

    def call_every(self, seconds: float, action: Callable[[float], None]) -> None:
        """Until the last request is over."""

        def again(now: float) -> None:
            action(now)
            if self._busy():
                self.call_at(now + seconds, again)

        if seconds <= 0.0:
            raise ValueError("a repeated action needs a positive interval")
        self.call_at(self.now + seconds, again)

    def report_event(self, id: str, event: Event, now: float) -> None:
        for balancer in self.balancers:
            if id in balancer.pool().replicas:
                self.carry_out(balancer.report(id, event, now=now), now)

    def crash(self, id: str, now: float) -> None:
        """Requests there are lost, new connections are refused."""
        server = self.servers[id]
        server.down += 1
        for job in server.clear():
            begun = isinstance(job, TokenJob) and job.first_token_at > 0.0
            self._end(job, Outcome.TRUNCATED if begun else Outcome.CONNECTION_LOST, now)

    def join(self, id: str, weight: float, now: float) -> None:
        for balancer in self.balancers:
            self.carry_out(balancer.add_replica(id, weight=weight, state=State.LOADING, now=now), now)

    def when_idle(self, id: str, then: Callable[[float], None], now: float) -> None:
        """Calls `then(now)` once this server, which gets nothing more, has drained."""
        self._draining[id] = then
        self._check_idle(self.servers[id], now)

    def _check_idle(self, server: Server, now: float) -> None:
        if server.id in self._draining and not server.busy and not server.queue:
            self._draining.pop(server.id)(now)

    def choose_balancer(self, job: Job) -> Balancer:
        return self.balancers[int(self._rng.random() * len(self.balancers))]

    def run(self) -> RunResult:
        events, calendar, jobs, balancers = self._events, self._calendar, self._jobs, self.balancers
        later = self._later
        single = balancers[0] if len(balancers) == 1 else None
        arrivals = 0
        upcoming = next(jobs, None)
        while True:
            job = upcoming
            if later and (job is None or later[0][0] < job.intended_at):
                job = later[0][2]
            if job is not None:
                now = job.intended_at
            elif events or self._waiting():
                now = INFINITY
            else:
                break  # the rest of the calendar concerns no request
            arrival = True
            if events and events[0][0] <= now:
                now = events[0][0]
                arrival = False
            wake = single.wake if single is not None else min(b.wake for b in balancers)
            due = wake if not calendar or wake < calendar[0][0] else calendar[0][0]
            if due <= now:
                self.now = max(self.now, due)  # a wake-up may be overdue
                self._run_due(self.now)
                continue
            if arrival:
                self.now = now
                assert job is not None
                arrivals += 1
                if job is upcoming:
                    upcoming = next(jobs, None)
                    self._arrivals_left = upcoming is not None or self.arrival_limit >= 0
                else:
                    heappop(later)
                if arrivals == self.arrival_limit:
                    upcoming, self._arrivals_left = None, False
                    later.clear()
                job.balancer = balancer = single or self.choose_balancer(job)
                decision = balancer.submit(job, now)
                if type(decision) is Send:
                    self._send(decision, now)
                elif type(decision) is Reject:
                    self._refused(decision)
                continue
            when, _, done = heappop(events)
            if done.finish == when:  # else cancelled, or its replica changed speed
                self.now = now
                self._complete(done, now)
        self._result.close(arrivals, self._ended, self.servers.values())
        return self._result

    def _busy(self) -> bool:
        """Something is yet to happen to a request."""
        return (
            self._arrivals_left
            or bool(self._later)
            or any(s.busy or s.queue for s in self.servers.values())
            or self._waiting()
        )

    def _waiting(self) -> bool:
        return any(len(b.pool(m).queue) for b in self.balancers for m in b.models)

    def _run_due(self, now: float) -> None:
        for balancer in self.balancers:
            if balancer.wake <= now:
                self.carry_out(balancer.expire(now), now)
        while self._calendar and self._calendar[0][0] <= now:
            heappop(self._calendar)[2](now)

    def schedule(self, when: float, job: Job) -> None:
        heappush(self._events, (when, next(self._count), job))

    def carry_out(self, decisions: Sequence[Decision], now: float) -> None:
        for decision in decisions:
            if type(decision) is Send:
                self._send(decision, now)
            elif type(decision) is Reject:
                self._refused(decision)
            elif type(decision) is Cancel:
                self._cancel(decision, now)

    def _send(self, decision: Send, now: float) -> None:
        job = decision.request
        assert isinstance(job, Job)
        if decision.hedged:
            job.context = job = job.hedge_attempt()
        job.server = server = self.servers[decision.replica.id]
        if server.down or server.failing:
            job.planned_outcome = Outcome.UNREACHABLE if server.down else Outcome.ERROR
            job.finish = finish = now + ERROR_DELAY_SECONDS
            heappush(self._events, (finish, next(self._count), job))
            return
        job.planned_outcome = Outcome.OK
        server.accept(job, now, self.schedule)

    def _cancel(self, decision: Cancel, now: float) -> None:
        """Stops the attempt that lost against its hedge."""
        job = decision.request
        assert isinstance(job, Job)
        for attempt in (job, job.context):
            if isinstance(attempt, Job) and attempt.server is not None and attempt.server.id == decision.replica.id:
                if attempt.planned_outcome is Outcome.OK:
                    attempt.server.abandon(attempt, now, self.schedule)
                attempt.finish = -1.0
                if self._draining:
                    self._check_idle(attempt.server, now)

    def _complete(self, job: Job, now: float) -> None:
        job.finish = -1.0
        fate = job.planned_outcome
        if fate is Outcome.OK:
            server = job.server
            assert server is not None
            server.ended(job, now, self.schedule)
            if type(job) is BackgroundJob:
                server.served -= 1
                job.on_done(now)
                return
            if type(job) is EngineStep:
                assert isinstance(server, EngineServer)
                self._deliver_tokens(server, now)
                return
        self._end(job, fate, now)

    def _deliver_tokens(self, server: EngineServer, now: float) -> None:
        for job in server.take_started():
            self._first_token(job, server, now)
        for job in server.take_finished():
            if self._attempt_on(server, job) is not None:
                origin = job.origin or job
                origin.usage = TokenUsage(job.prompt_tokens, job.output_tokens, job.cached_tokens)
                self._end(job, Outcome.OK, now)

    def _first_token(self, job: TokenJob, server: EngineServer, now: float) -> None:
        attempt = self._attempt_on(server, job)
        if attempt is None:
            return
        job.first_token_at = now
        origin = job.origin or job
        origin.first_byte = now
        balancer = origin.balancer
        assert balancer is not None
        self.carry_out(balancer.response_started(origin, attempt.replica, now), now)

    def _attempt_on(self, server: Server, job: Job) -> Attempt | None:
        """None: it was cancelled at this very moment."""
        origin = job.origin or job
        attempts = (origin.attempt, origin.hedge)
        return next((a for a in attempts if a is not None and a.replica.id == server.id), None)

    def _end(self, job: Job, outcome: Outcome, now: float) -> None:
        self._ended = now
        origin = job.origin or job
        balancer = origin.balancer
        assert balancer is not None
        assert job.server is not None
        if origin.hedge is None:
            decisions = balancer.finish(origin, outcome, now)
        else:
            attempts = (origin.attempt, origin.hedge)
            served = next(f for f in attempts if f is not None and f.replica.id == job.server.id)
            decisions = balancer.finish(origin, outcome, now, replica=served.replica)
        if decisions:
            self.carry_out(decisions, now)
        if self._draining:
            self._check_idle(job.server, now)
        answered = outcome is Outcome.OK
        given_up = not answered and origin.attempt is None and not any(d.request is origin for d in decisions)
        if self.on_request_end is not None and (answered or given_up):
            self.on_request_end(origin, answered, now)
        if origin.intended_at < self._warmup:
            return
        result = self._result
        if answered:
            # Histogram.add, written out: this runs once per request
            seconds = now - origin.intended_at
            histogram = result.latency
            index = int(log(seconds) * BUCKETS_PER_LN + BUCKET_OFFSET) if seconds > MIN_BUCKET_SECONDS else 0
            histogram.counts[index if index < BUCKET_COUNT else BUCKET_COUNT - 1] += 1
            histogram.count += 1
            histogram.total += seconds
            if seconds > histogram.maximum:
                histogram.maximum = seconds
            in_time = seconds <= self._slo and now <= origin.deadline
            if result.tokens is not None and isinstance(job, TokenJob):
                in_time &= result.tokens.add(job, origin.intended_at, now)
            result.within_slo += in_time
            if seconds <= 3.0 * origin.work:
                result.low_slowdown += 1
        elif given_up:
            result.failed += 1

    def _refused(self, decision: Reject) -> None:
        job = decision.request
        assert isinstance(job, Job)
        self._ended = self.now
        if self.on_request_end is not None:
            self.on_request_end(job, False, self.now)
        if job.intended_at >= self._warmup:
            code = decision.reason.code
            self._result.refused[code] = self._result.refused.get(code, 0) + 1
