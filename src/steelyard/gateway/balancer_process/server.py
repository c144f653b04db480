"""Requests of all workers in one balancer.

A request of a worker is a `RemoteRequest` here. It ends when its worker says so, when it is refused, or with the
connection to the worker: then its load is given back, and its memory when the replica should be done with it.

After a restart the requests that already run have to be counted before anything is decided: until every worker has said
`Hello`, or `RECOVERY_SECONDS` have passed, what else comes is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec.structs import astuple

from ...core.attempts.hedging import other_attempt
from ...core.balancer import Balancer
from ...core.decision import Cancel, Decision, Reject, Send, Wait
from ...core.errors import PolicyFailedError
from ...core.outcome import Outcome
from ...core.prompt import TokenUsage
from ...core.reason import Reason
from ...core.replica import Replica
from ...core.request import INFINITY, Attempt, Request, RequestPhase
from ...core.scheduler import pool_of, refuse_after_policy_error
from ...link.decision_log.lines import LoggedChoice
from ..proxy.dispatch_hooks import DeviceMemory
from ..shared_balancer.messages import (
    OUTCOMES,
    OVER,
    RETRY,
    CancelRequest,
    ConnectionBroken,
    Decline,
    Dispatch,
    EngineLoadReport,
    FailOver,
    Finish,
    FinishFields,
    Hello,
    MemoryReport,
    OutOfMemoryReport,
    Queued,
    Refuse,
    ReplicaRefused,
    ResponseStarted,
    Running,
    Stop,
    Submit,
    SubmitFields,
    TrialPassed,
    decode_prompt,
)
from ..telemetry.choices import ChoiceRecord, ChoiceRecorder

RECOVERY_SECONDS: Final = 1.0
NEW: Final = RequestPhase.NEW
RUNNING: Final = RequestPhase.RUNNING
WAITING: Final = RequestPhase.WAITING
OUT_OF_MEMORY: Final = Outcome.OUT_OF_MEMORY
CANCELLED: Final = Outcome.CANCELLED


class RemoteRequest(Request):
    """A request that a worker holds."""

    __slots__ = ("link", "number")

    def __init__(self, link: WorkerLink, message: Submit) -> None:
        # All fields at once: to look each one up by name costs as much as half the decision.
        fields: SubmitFields = astuple(message)
        number, model, _, features, kind, tenant, share, key, cold, by, first_by = fields[:11]
        streams, priority, safe, tried, _, prompt = fields[11:]
        super().__init__(
            model,
            features,
            deadline=by,
            first_byte_by=first_by,
            streams=streams,
            priority=priority,
            tenant=tenant,
            kind=kind,
            key=key,
            cold_seconds=cold,
            idempotent=safe,
            prompt=decode_prompt(prompt) if prompt is not None else None,
        )
        self.fair_share_key = share
        self.attempt_count = tried
        self.link = link
        self.number = number


class WorkerLink:
    """A connected worker and its requests."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self.send = send
        self.requests: dict[int, RemoteRequest] = {}
        self.worker = -1  # its number, once it has said so


class BalancerServer:
    def __init__(
        self,
        balancer: Balancer,
        wake_by: Callable[[float, float], None],
        recover: Iterable[int] = (),
        log: Callable[[str], None] = print,
    ) -> None:
        """`wake_by(when, now)`: `expire` is wanted then. `recover`: pids of workers that may have requests already."""
        self.balancer = balancer
        self.memory = DeviceMemory()
        self.links: list[WorkerLink] = []
        self.choices: ChoiceRecorder | None = None  # where there is a decision log
        self.on_replica_failure: Callable[[Replica, bool, float], None] = lambda replica, refused, now: None
        self.on_requests_lost: Callable[[int, dict[str, int]], None] = lambda worker, requests: None
        self.on_adopted: Callable[[list[tuple[int, int, int]]], None] = lambda reservations: None
        self._wake_by = wake_by
        self._log = log
        self._now = 0.0  # the latest time in messages of workers, which are not quite in order
        self._recover = set(recover)  # those that have not said `Hello`
        self._recovery_ends = INFINITY if self._recover else 0.0
        self._kept: list[tuple[WorkerLink, Any]] = []
        self._adopted: list[tuple[int, int, int]] = []  # column, device and bytes of attempts found running just now
        self._unresponsive: list[Replica] = []  # ejected just now for silence
        balancer.on_silent_ejection = self._unresponsive.append

    # ------------------------------------------------------------------ workers

    def add_worker(self, send: Callable[[Any], None]) -> WorkerLink:
        link = WorkerLink(send)
        self.links.append(link)
        return link

    def remove_worker(self, link: WorkerLink, now: float) -> None:
        """Its requests are over. Waiting ones first: none must take a slot that another leaves."""
        self.links.remove(link)
        requests, link.requests = link.requests, {}
        lost = Counter(request.model for request in requests.values())
        lost += Counter(message.model for of, message in self._kept if of is link and type(message) is Submit)
        self._kept = [entry for entry in self._kept if entry[0] is not link]
        if lost:
            self.on_requests_lost(link.worker, lost)
        for phase in (WAITING, RUNNING):
            for request in [request for request in requests.values() if request.phase is phase]:
                self._execute_others(request, self.balancer.cancel(request, now), now)

    def receive(self, link: WorkerLink, messages: Sequence[Any], now: float) -> None:
        for message in messages:
            if self._recovery_ends and not isinstance(message, Running):
                self._recovering(link, message, now)
                continue
            try:
                self._take(link, message, now)
            except Exception as problem:  # whatever it was, the next message is heard
                self._log(f"error {type(message).__name__}: {type(problem).__name__}: {problem}")
                self._refuse_unplaced(link, getattr(message, "number", 0))
        if self._adopted and not self._recovery_ends:
            self._tell_adopted()
        if self.balancer.wake < INFINITY:
            self._wake_by(self.balancer.wake, now)

    def _recovering(self, link: WorkerLink, message: Any, now: float) -> None:
        if type(message) is Hello:
            link.worker = message.worker
            self._recover.discard(message.pid)
            if self._recovery_ends == INFINITY:
                self._recovery_ends = now + RECOVERY_SECONDS
            self._wake_by(self._recovery_ends if self._recover else now, now)
            return
        self._kept.append((link, message))

    def _end_recovery(self, now: float) -> None:
        """Requests in the order in which they came to the gateway."""
        self._recovery_ends = 0.0
        self._tell_adopted()
        kept, self._kept = self._kept, []
        kept.sort(key=lambda entry: entry[1].arrived if type(entry[1]) is Submit else INFINITY)
        for link, message in kept:
            self.receive(link, (message,), now)

    def _tell_adopted(self) -> None:
        adopted, self._adopted = self._adopted, []
        self.on_adopted(adopted)

    def _refuse_unplaced(self, link: WorkerLink, number: int) -> None:
        """Nothing else will ever answer it."""
        request = link.requests.get(number)
        if request is not None and request.phase is not RUNNING and request.phase is not WAITING:
            self._refuse(refuse_after_policy_error(request))

    def _take(self, link: WorkerLink, message: Any, now: float) -> None:
        kind = type(message)
        if kind is Submit:
            self._submit(link, message)
        elif kind is Finish:
            self._finish(link, message)
        elif kind is CancelRequest:
            request = link.requests.pop(message.number, None)
            if request is not None:
                self._cancel(request, self._clock(message.at))
        elif kind is ResponseStarted:
            request, attempt = self._running(link, message.number, message.replica)
            if request is not None and attempt is not None:
                at = self._clock(message.at)
                started = self.balancer.response_started
                others = started(request, attempt.replica, at, first_byte=message.first_byte)
                self._execute_others(request, others, at)
        elif kind is Decline:
            self._declined(link, message)
        elif kind is Hello:
            link.worker = message.worker
        elif kind is Running:
            self._resume(link, message, now)
        elif kind is EngineLoadReport:
            self._of_replica(message, self._engine_load, now)
        elif kind is ReplicaRefused:
            self._of_replica(message, self._replica_refused, now)
        elif kind is TrialPassed:
            self._of_replica(message, self._trial_passed, now)
        else:
            self._memory(link, message, now)

    def _clock(self, at: float) -> float:
        if at > self._now:
            self._now = at
        return self._now

    # ------------------------------------------------------------------ requests

    def _submit(self, link: WorkerLink, message: Submit) -> None:
        link.requests[message.number] = request = RemoteRequest(link, message)
        now = self._clock(message.arrived)
        if message.traced and self.choices is not None:
            request.choice_trace = ChoiceRecord(message.arrived)
        self._place(request, now)

    def _place(self, request: RemoteRequest, now: float) -> None:
        try:
            decision = self.balancer.submit(request, now)
        except PolicyFailedError:
            decision = refuse_after_policy_error(request)
        if type(decision) is Send:
            self._dispatch(request, decision.replica, False, now)
        elif type(decision) is Reject:
            self._refuse(decision)
        else:
            self._queue(request, now)

    def _resume(self, link: WorkerLink, message: Running, now: float) -> None:
        """Decided on by another balancer process, which is gone."""
        request = link.requests.get(message.request.number)
        if request is None:
            link.requests[message.request.number] = request = RemoteRequest(link, message.request)
        pool = self.balancer.find(message.request.model)
        replica = pool.replicas.get(message.replica) if pool is not None else None
        if replica is None:
            return  # removed meanwhile: nothing is to be counted, but a retry is placed as if it were new
        request.first_byte = message.first_byte
        self.balancer.adopt(
            request,
            replica,
            message.started,
            message.seconds_alone,
            message.predicted,
            reserved_bytes=message.reserved_bytes,
            hedged=message.hedged and request.attempt is not None,
            now=now,
        )
        if replica.residency is not None:
            self._adopted.append((replica.residency.column, replica.residency.device.index, message.reserved_bytes))

    def _running(self, link: WorkerLink, number: int, replica: str) -> tuple[RemoteRequest | None, Attempt | None]:
        """The request, and its attempt on this replica, if that runs."""
        request = link.requests.get(number)
        if request is None or request.phase is not RUNNING:
            return request, None
        for attempt in (request.attempt, request.hedge):
            if attempt is not None and attempt.replica.id == replica:
                return request, attempt
        return request, None

    def _finish(self, link: WorkerLink, message: Finish) -> None:
        fields: FinishFields = astuple(message)
        number, replica_id, outcome_code, at, then, status, first_byte, usage = fields
        request, attempt = self._running(link, number, replica_id)
        if request is None:
            return
        now, wanted = self._clock(at), then
        if attempt is not None:
            replica, outcome = attempt.replica, OUTCOMES[outcome_code]
            request.first_byte = first_byte if first_byte < at else now  # `now` may be later: it began with its end
            if usage is not None:
                request.usage = TokenUsage(*usage)
            alone = other_attempt(request, attempt) is None
            if then == RETRY and alone and outcome is OUT_OF_MEMORY and not self._could_retry(request, replica, now):
                then = OVER
            decisions = self.balancer.finish(request, outcome, now, replica=replica, status=status, retry=then == RETRY)
            if outcome.failed:
                self.on_replica_failure(replica, False, now)
            if then == RETRY:
                self.execute(decisions, now)
            else:
                self._execute_others(request, decisions, now)
        elif then == RETRY and request.phase is NEW:
            self._place(request, now)
        if then == OVER:
            link.requests.pop(number, None)
            if wanted == RETRY:
                self._refuse(Reject(request, Reason.TOO_LARGE))
            else:  # a hedge may have been sent just now, that the worker never saw
                self._cancel(request, now)

    def _cancel(self, request: RemoteRequest, now: float) -> None:
        """What is left of it; its worker has no more of it."""
        if request.phase is WAITING or request.phase is RUNNING:
            self._execute_others(request, self.balancer.cancel(request, now), now)

    def _declined(self, link: WorkerLink, message: Decline) -> None:
        request, attempt = self._running(link, message.number, message.replica)
        if request is None or attempt is None:
            return
        now, other = self._clock(message.at), other_attempt(request, attempt)
        if other is not None:
            others = self.balancer.response_started(request, other.replica, now, first_byte=False)
            self._execute_others(request, others, now)
            return
        self.execute(self.balancer.finish(request, CANCELLED, now, replica=attempt.replica, retry=True), now)

    @staticmethod
    def _could_retry(request: Request, failed: Replica, now: float) -> bool:
        pool = pool_of(request)
        return pool.memory.could_retry(request, pool.members, failed, now)

    def execute(self, decisions: Sequence[Decision], now: float) -> None:
        for decision in decisions:
            request = decision.request
            assert isinstance(request, RemoteRequest)
            if type(decision) is Send:
                self._dispatch(request, decision.replica, decision.hedged, now)
            elif type(decision) is Reject:
                self._refuse(decision)
            elif type(decision) is Wait:
                self._queue(request, now)
            elif type(decision) is Cancel:
                request.link.send(Stop(request.number, decision.replica.id))

    def _execute_others(self, request: Request, decisions: Sequence[Decision], now: float) -> None:
        """Its worker has done its own part already."""
        self.execute([decision for decision in decisions if decision.request is not request], now)

    def _dispatch(self, request: RemoteRequest, replica: Replica, hedged: bool, now: float) -> None:
        attempt = request.hedge if hedged else request.attempt
        assert attempt is not None
        message = Dispatch(
            request.number,
            replica.id,
            request.base,
            attempt.seconds_alone,
            attempt.predicted,
            attempt.concurrency,
            attempt.reservation[1] if attempt.reservation is not None else 0,
            hedged,
            replica.unverified,
        )
        if request.choice_trace is not None:
            message.choice_count, message.choices = self._choices_of(request, now)
        request.link.send(message)
        if replica.residency is not None:
            self.memory.dispatched(replica, attempt.predicted, now)

    def _queue(self, request: RemoteRequest, now: float) -> None:
        self._not_placed(request, now)
        request.link.send(Queued(request.number, request.base, *self._choices_of(request, now)))
        self.memory.request_waiting(request.model, now)

    def _refuse(self, reject: Reject) -> None:
        request = reject.request
        assert isinstance(request, RemoteRequest)
        request.link.requests.pop(request.number, None)
        if not request.attempt_count and not request.queued_at:
            self._not_placed(request, self._now)
        pool, starting = request.pool, None
        if pool is not None and not pool.members:
            starting = (pool.next_ready_at, pool.next_ready_is_guess, pool.start_failure)
        request.link.send(
            Refuse(
                request.number,
                reject.reason.code,
                reject.retry_after,
                reject.too_large,
                request.base,
                request.binding_deadline,
                request.deadline_bound,
                request.predicted_seconds,
                starting,
                *self._choices_of(request, self._now),
            )
        )
        self.memory.request_rejected(request.model, self._now)

    def _not_placed(self, request: RemoteRequest, now: float) -> None:
        if request.choice_trace is not None and self.choices is not None and not request.choice_trace.choice_count:
            self.choices.not_placed(request, now)

    @staticmethod
    def _choices_of(request: RemoteRequest, now: float) -> tuple[int, tuple[LoggedChoice, ...]]:
        noted: ChoiceRecord | None = request.choice_trace
        if noted is None:
            return 0, ()
        choices = noted.take()
        return max(noted.choice_count, len(choices)), choices

    # ------------------------------------------------------------------ replicas

    def _of_replica(self, message: Any, act: Callable[[Replica, Any, float], Sequence[Decision]], now: float) -> None:
        pool = self.balancer.find(message.model)
        replica = pool.replicas.get(message.replica) if pool is not None else None
        if replica is not None:
            self.execute(act(replica, message, now), now)

    def _engine_load(self, replica: Replica, message: EngineLoadReport, now: float) -> Sequence[Decision]:
        return self.balancer.report_engine_load(
            replica.id, message.requests, message.model, now=now, lasting=message.ttl
        )

    def _trial_passed(self, replica: Replica, message: TrialPassed, now: float) -> Sequence[Decision]:
        return self.balancer.trial_passed(replica.id, message.model, now=now)

    def _replica_refused(self, replica: Replica, message: ReplicaRefused, now: float) -> Sequence[Decision]:
        self.memory.replica_gone(replica, now)
        self.on_replica_failure(replica, True, now)
        return self.balancer.replica_lost(replica, message.model, now=now)

    def _memory(self, link: WorkerLink, message: Any, now: float) -> None:
        request, attempt = self._running(link, message.number, message.replica)
        if request is None or attempt is None:
            return
        replica = attempt.replica
        if isinstance(message, MemoryReport):
            self.memory.response_started(replica, request, message.held, message.request_bytes, message.informative)
        elif isinstance(message, OutOfMemoryReport):
            self.memory.out_of_memory(request, replica, message.how, now)
        elif isinstance(message, ConnectionBroken):
            self.memory.connection_lost(request, replica, now)

    def fail_over(self, replica: Replica, now: float) -> None:
        """Not here: each worker hears of a lost replica from the supervisor, and sends its own requests elsewhere."""

    # ------------------------------------------------------------------ time

    def wake_now(self, now: float) -> None:
        self.balancer.wake = 0.0
        self._wake_by(now, now)

    def expire(self, now: float) -> None:
        if self._recovery_ends and (now >= self._recovery_ends or not self._recover):
            self._end_recovery(now)
        now = self._clock(now)
        self.execute(self.balancer.expire(now), now)
        while self._unresponsive:
            replica = self._unresponsive.pop()
            message = FailOver(replica.context.model, replica.id)
            for link in self.links:
                link.send(message)
