"""The dispatcher carries out what the balancer decides, and tells it what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ...core.decision import Cancel, Decision, Pending, Reject, Send, Wait
from ...core.errors import PolicyFailedError
from ...core.outcome import Outcome
from ...core.replica import Replica, State
from ...core.request import INFINITY, RequestPhase
from ...core.scheduler import refuse_after_policy_error
from ...core.slo.verdicts import LATE, OVERLOAD, REPLICA
from ...protocols.load import read_orca
from ..exchange import ENDED, ON_DISPATCH, ON_QUEUE, ON_UPGRADE, Exchange
from ..http import local_replies
from ..http.local_replies import ErrorReply
from ..http.response_head import ResponseHead
from ..telemetry import model_stats
from .dispatch_hooks import DeviceMemory
from .flow_control import PAUSED_PIPELINE_FULL
from .upstream_connection import UpstreamConnection

if TYPE_CHECKING:
    from .proxy import Proxy

MIN_LOAD_REPORT_SECONDS: Final = 0.1  # between two that are read
LOAD_REPORT_TTL_SECONDS: Final = 5.0
DECISION_GRACE_SECONDS: Final = 0.25  # after a deadline, for a refusal that is under way
MAX_IDLE_SECONDS_UNSAFE: Final = 1.0  # a connection unused for longer may be about to be closed by its server

# Looked up once: members of an enumeration are slow to find.
OK: Final = Outcome.OK
CANCELLED: Final = Outcome.CANCELLED
CLIENT_ERROR: Final = Outcome.CLIENT_ERROR
OUT_OF_MEMORY: Final = Outcome.OUT_OF_MEMORY
DEADLINES_EXCEEDED: Final = (Outcome.DEADLINE_EXCEEDED, Outcome.CLIENT_DEADLINE_EXCEEDED)
RUNNING: Final = RequestPhase.RUNNING
WAITING: Final = RequestPhase.WAITING
DONE: Final = RequestPhase.DONE
GONE: Final = State.GONE


class Dispatcher:
    def __init__(self, proxy: Proxy) -> None:
        self.balancer = proxy.balancer
        self.memory = DeviceMemory()
        self.on_replica_failure: Callable[[Replica, bool, float], None] = lambda replica, refused, now: None
        self._proxy = proxy
        self._buffers = proxy.buffers
        self._deadlines = proxy.deadlines
        self._recorder = proxy.recorder
        self._writer = proxy.writer
        self._unresponsive: list[Replica] = []  # ejected just now for silence
        self.balancer.on_silent_ejection = self._unresponsive.append

    # ------------------------------------------------------------------ decisions

    def submit(self, exchange: Exchange, now: float) -> None:
        if self._recorder.samples_decisions:
            self._recorder.sample_decision(exchange, now)
        try:
            decision = self.balancer.submit(exchange, now)
        except PolicyFailedError:
            decision = refuse_after_policy_error(exchange)
        if type(decision) is Send:
            self._dispatch(exchange, decision.replica, now)
        elif type(decision) is Reject:
            for observer in exchange.observers:
                observer.not_placed(exchange, now)
            self.reject(exchange, decision, now)
            self.memory.request_rejected(exchange.model, now)
        elif type(decision) is Wait:
            self._queue(exchange, now)
        else:
            exchange.state = ON_QUEUE[exchange.state]
            if type(decision) is Pending and decision.away:
                self._hold(exchange, now)
        due = exchange.deadline if exchange.deadline < exchange.first_byte_by else exchange.first_byte_by
        if due < INFINITY and exchange.phase is not DONE:
            self._deadlines.add(exchange, due, now)
        if self.balancer.wake < self._deadlines.timer_at:
            self._deadlines.wake_by(self.balancer.wake, now)

    def _queue(self, exchange: Exchange, now: float) -> None:
        exchange.state = ON_QUEUE[exchange.state]
        if self._hold(exchange, now):
            for observer in exchange.observers:
                observer.not_placed(exchange, now)
            self.memory.request_waiting(exchange.model, now)

    def _hold(self, exchange: Exchange, now: float) -> bool:
        """It waits: its body counts as held. False: there is no room, and it is refused."""
        if exchange.held_bytes or self._buffers.hold(exchange, exchange.body_size, now):
            return True
        exchange.client.fail(exchange, self._buffers.full_reply, now, model_stats.REFUSED)
        return False

    def execute(self, decisions: Sequence[Decision], now: float) -> None:
        for decision in decisions:
            exchange = decision.request
            assert isinstance(exchange, Exchange)
            if type(decision) is Send:
                self._dispatch(exchange, decision.replica, now, decision.hedged)
            elif type(decision) is Reject:
                self.reject(exchange, decision, now)
            elif type(decision) is Cancel:
                self._cancel(exchange, decision.replica, now)
            elif type(decision) is Wait and not exchange.attempt_count:
                self._queue(exchange, now)
            else:
                exchange.state = ON_QUEUE[exchange.state]
        if self.balancer.wake < self._deadlines.timer_at:
            self._deadlines.wake_by(self.balancer.wake, now)

    def _dispatch(self, exchange: Exchange, replica: Replica, now: float, hedged: bool = False) -> None:
        exchange.state = ON_DISPATCH[exchange.state]
        exchange.replica_id = replica.id
        upstream = replica.context
        connection = upstream.pool.acquire(INFINITY if exchange.idempotent else MAX_IDLE_SECONDS_UNSAFE, now)
        if hedged:
            exchange.hedge_upstream = connection
        else:
            exchange.upstream = connection
            exchange.dispatched_at = exchange.dispatched_at or now
        for observer in exchange.observers:
            observer.dispatched(exchange, replica, now, hedged)
        if replica.residency is not None and exchange.attempt is not None:
            self.memory.dispatched(replica, exchange.attempt.predicted, now)
        connection.assign(exchange, replica, now)

    def reject(self, exchange: Exchange, reject: Reject, now: float) -> None:
        problem = local_replies.reject_reply(reject)
        if problem.fault == OVERLOAD and exchange.pool is not None and not exchange.pool.members:
            exchange.fault = REPLICA  # no replica was ready: not overload
        exchange.client.fail(exchange, problem, now, model_stats.REFUSED, reject.retry_after)

    def _cancel(self, exchange: Exchange, replica: Replica, now: float) -> None:
        replica.context.count_outcome(CANCELLED.label)
        for connection in (exchange.upstream, exchange.hedge_upstream):
            if connection is not None and connection.replica is replica:
                connection.end(False, now)
                for observer in exchange.observers:
                    observer.attempt_lost(exchange, replica, "cancelled" if exchange.state == ENDED else "lost", now)
                return

    def cancel(self, exchange: Exchange, now: float) -> None:
        """The request is over: the balancer stops what runs or waits for it."""
        if exchange.phase is WAITING or exchange.phase is RUNNING:
            self.execute(self.balancer.cancel(exchange, now), now)

    # ------------------------------------------------------------------ what happened

    def response_complete(self, exchange: Exchange, replica: Replica, now: float) -> None:
        try:
            if exchange.phase is RUNNING:
                status = exchange.status
                # How long a tunnel was open tells nothing of the model.
                outcome = OK if status < 400 and status != 101 else CLIENT_ERROR if status >= 400 else CANCELLED
                decisions = self._attempt_ended(exchange, replica, outcome, "", now)
                if decisions:
                    self.execute(decisions, now)
        finally:  # a user's own policy may have raised: the request is over all the same
            exchange.end("", "", now)

    def response_truncated(self, exchange: Exchange, connection: UpstreamConnection, now: float) -> None:
        decisions: Sequence[Decision] = ()
        if exchange.phase is RUNNING:
            if connection.peer_closed:
                self.memory.connection_lost(exchange, connection.replica, now)
            # A client that does not read its response makes the replica wait: that is no failure of the replica.
            outcome = CANCELLED if connection.paused else Outcome.TRUNCATED
            decisions = self._attempt_ended(exchange, connection.replica, outcome, outcome.label, now)
        exchange.fault = REPLICA
        exchange.end(model_stats.FAILED, "truncated", now)
        exchange.client.abort_response(exchange)
        self.execute(decisions, now)

    def error_response(
        self,
        exchange: Exchange,
        connection: UpstreamConnection,
        outcome: Outcome,
        status: int,
        reusable: bool,
        now: float,
    ) -> bool:
        """True: no other replica will try, so the client gets this response."""
        replica = connection.replica
        if outcome is OUT_OF_MEMORY:
            self.memory.out_of_memory(exchange, replica, "reported", now)
        for observer in exchange.observers:
            observer.attempt_lost(exchange, replica, outcome.label, now, status)
        decisions = self._attempt_ended(exchange, replica, outcome, f"HTTP {status}", now, status)
        self.report_failure(replica, now)
        if exchange.phase is DONE:
            # Perhaps with a refusal for lack of another replica: this one's own words say more.
            self.execute([d for d in decisions if d.request is not exchange], now)
            return True
        connection.end(reusable, now)
        self.execute(decisions, now)
        return False

    def attempt_failed(
        self, exchange: Exchange, connection: UpstreamConnection, outcome: Outcome, problem: ErrorReply, now: float
    ) -> None:
        """An attempt failed before the client saw anything of it. Its connection has ended."""
        replica = connection.replica
        for observer in exchange.observers:
            observer.attempt_lost(exchange, replica, outcome.label, now)
        other = exchange.upstream
        if other is not None and not outcome.failed:
            # Not this replica's fault, and another attempt runs: that one goes on alone.
            self.response_started(exchange, other, now, first_byte=False)
            return
        if outcome is Outcome.CONNECTION_LOST and connection.peer_closed:
            self.memory.connection_lost(exchange, replica, now)
        decisions = self._attempt_ended(exchange, replica, outcome, problem.code, now)
        if exchange.phase is DONE and not any(d.request is exchange for d in decisions):
            exchange.client.fail(exchange, problem, now, model_stats.FAILED)
        self.execute(decisions, now)
        if outcome.failed:
            self.report_failure(replica, now)

    def _attempt_ended(
        self, exchange: Exchange, replica: Replica, outcome: Outcome, error: str, now: float, status: int = 0
    ) -> Sequence[Decision]:
        """The one way an attempt ends. Returns what the balancer decides, to be carried out when the client has been
        served. `error`: for people."""
        failed = replica.failed
        decisions = self.balancer.finish(exchange, outcome, now, replica=replica, status=status)
        if outcome is not OK:
            label = outcome.label
            if outcome in DEADLINES_EXCEEDED:  # far past its estimate it counts against the replica, as a timeout
                label = (Outcome.TIMEOUT if replica.failed > failed else Outcome.DEADLINE_EXCEEDED).label
            if replica.failed > failed:
                replica.context.record_failure(label, error, now)
            else:
                replica.context.count_outcome(label)
        return decisions

    def report_failure(self, replica: Replica, now: float, *, refused: bool = False) -> None:
        if refused:
            self.memory.replica_gone(replica, now)
        self.on_replica_failure(replica, refused, now)

    def trial_passed(self, replica: Replica, now: float) -> None:
        """The first byte is enough: an answer may take minutes."""
        self.execute(self.balancer.trial_passed(replica.id, replica.context.model, now=now), now)

    def read_load_report(self, exchange: Exchange, replica: Replica, orca: bytes, status: int, now: float) -> None:
        """`orca`: a load report (ORCA), or nothing."""
        upstream = replica.context
        counted = replica.residency is not None
        soon = now < upstream.load_at + MIN_LOAD_REPORT_SECONDS
        load = read_orca(orca) if orca and (counted or not soon) else None
        if counted:
            held, needed = (load.held, load.request_bytes) if load is not None else (None, None)
            ran = status < 300 and exchange.route.method == b"POST"  # an error, or a look, tells nothing
            self.memory.response_started(
                replica,
                exchange,
                int(held) if held is not None else None,
                int(needed) if needed is not None else None,
                ran,
            )
        if load is None or soon or replica.state is GONE:
            return
        upstream.load_at = now
        upstream.load = load
        if load.requests is not None:
            engine = self.balancer.report_engine_load
            self.execute(
                engine(replica.id, load.requests, upstream.model, now=now, lasting=LOAD_REPORT_TTL_SECONDS), now
            )

    def fail_over(self, replica: Replica, now: float) -> None:
        """What waits for its first byte and may be sent elsewhere is sent elsewhere."""
        for connection in [c for c in self._proxy.active if c.replica is replica]:
            exchange = connection.exchange
            if exchange is None or exchange.response_started or exchange.hedge_upstream is not None:
                continue
            if exchange.phase is RUNNING and self.balancer.can_fail_over(exchange, now):
                connection.on_timeout(now)

    def response_started(
        self, exchange: Exchange, connection: UpstreamConnection, now: float, *, first_byte: bool = True
    ) -> None:
        """`first_byte`: not only the head of a stream."""
        started = self.balancer.response_started
        self.execute(started(exchange, connection.replica, now, first_byte=first_byte), now)

    def move_attempt(self, exchange: Exchange, old: UpstreamConnection, new: UpstreamConnection, now: float) -> None:
        if exchange.upstream is old:
            exchange.upstream = new
        else:
            exchange.hedge_upstream = new
        new.assign(exchange, old.replica, now)

    def tunnel(
        self, exchange: Exchange, connection: UpstreamConnection, head: ResponseHead, rest: bytes, now: float
    ) -> None:
        """The replica changed protocols: from here on bytes are bytes."""
        if exchange.hedge_upstream is not None:
            self.response_started(exchange, connection, now)
        exchange.state = ON_UPGRADE[exchange.state]
        exchange.status = 101
        exchange.close = True
        exchange.first_byte = now
        exchange.outcome = model_stats.OK  # whichever side closes it, and however long it lasts
        client = exchange.client
        lines = (*head.lines, connection.replica.context.label, b"connection: upgrade\r\nupgrade: " + head.upgrade)
        self._writer.write(client.transport, b"\r\n".join((*lines, b"", rest)))
        client.tunnel = connection
        if client.pending:
            self._writer.write(connection.transport, client.take_pending())
            client.resume_reading(PAUSED_PIPELINE_FULL, now)

    # ------------------------------------------------------------------ time

    def wake_now(self, now: float) -> None:
        self.balancer.wake = 0.0
        self._deadlines.wake_by(now, now)

    def expire(self, now: float) -> None:
        self.execute(self.balancer.expire(now), now)
        while self._unresponsive:
            self.fail_over(self._unresponsive.pop(), now)

    def deadline_passed(self, exchange: Exchange, now: float) -> None:
        """An answer that has begun may go on."""
        if exchange.phase is WAITING:
            self._still_waits(exchange, now)
        if exchange.response_started or exchange.phase is not RUNNING:
            return
        exchange.fault = LATE
        connection = exchange.upstream
        if connection is not None and exchange.hedge_upstream is None:  # of two, neither is known to be at fault
            timeout = self._proxy.router.models[exchange.model].timeout
            ours = timeout is not None and now >= exchange.started_at + timeout
            # The operator's timeout, or the client's own choice.
            outcome = Outcome.DEADLINE_EXCEEDED if ours else Outcome.CLIENT_DEADLINE_EXCEEDED
            code = local_replies.DEADLINE_EXCEEDED.code
            self.execute(self._attempt_ended(exchange, connection.replica, outcome, code, now), now)
        exchange.client.fail(exchange, local_replies.DEADLINE_EXCEEDED, now, model_stats.FAILED)

    def _still_waits(self, exchange: Exchange, now: float) -> None:
        """The balancer process should have refused it by now. If it has not, it is away."""
        due = exchange.deadline if exchange.deadline < exchange.first_byte_by else exchange.first_byte_by
        if now < due + DECISION_GRACE_SECONDS:
            self._deadlines.add(exchange, due + DECISION_GRACE_SECONDS, now)
        else:
            self.execute(self.balancer.out_of_time(exchange, now), now)
