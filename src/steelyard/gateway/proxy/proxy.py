"""The proxy: connects clients, the balancer and replicas. It carries out what the balancer decides, and tells it what
happened.

"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ...config import Config
from ...core.balancer import Balancer
from ...core.decision import Cancel, Decision, Reject, Send
from ...core.outcome import Outcome
from ...core.reason import Reason
from ...core.replica import Event, Replica, State
from ...core.request import INFINITY, RequestPhase
from ...core.slo.verdicts import GATEWAY, LATE, OVERLOAD, REPLICA
from ...protocols.base import LocalReply, ModelView
from ...protocols.load import read_orca
from ...protocols.repository import FORBIDDEN_CONTROL
from ..http.headers import REQUEST_ROLES, RESPONSE_ROLES, HeaderTable
from ..http.response_head import ResponseHead, StatusLineCache
from ..http.rewrite import add_trace_ids
from ..routing.client_identity import TrustPolicy, session_key
from ..routing.health_requests import PROBE, SCALED_TO_ZERO_REPLY
from ..routing.model_checks import mismatch
from ..routing.router import Router
from ..telemetry import model_stats
from ..worker.overload import ResourceAlarm
from . import local_replies
from .body_buffers import BodyBuffers
from .deadlines import SWEEP_SECONDS, Deadlines
from .exchange import Exchange
from .fair_turns import FairTurns
from .local_replies import ErrorReply
from .recorder import RequestRecorder
from .request_options import apply_request_options
from .turn_writer import TurnWriter
from .upstream_connection import TUNNEL, UpstreamConnection

if TYPE_CHECKING:
    from ..worker.device_memory import DeviceMemory
    from ..worker.peer_workers import PeerWorkers
    from .client_connection import ClientConnection

MIN_LOAD_REPORT_SECONDS: Final = 0.1  # seconds: a load report that comes sooner after another is not read
LOAD_REPORT_TTL_SECONDS: Final = 5.0  # seconds for which one holds
MAX_IDLE_SECONDS_UNSAFE: Final = 1.0  # seconds: a connection unused for longer may be about to be closed by its server

# Looked up once: members of an enumeration are slow to find.
OK: Final = Outcome.OK
OUT_OF_MEMORY: Final = Outcome.OUT_OF_MEMORY
RUNNING: Final = RequestPhase.RUNNING
WAITING: Final = RequestPhase.WAITING
DONE: Final = RequestPhase.DONE
READY: Final = State.READY
GONE: Final = State.GONE


class Proxy:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        balancer: Balancer,
        config: Config,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.loop = loop
        self.clock = clock  # read once in each callback of the loop, which passes `now` on
        now = clock()
        self.balancer = balancer
        self.clients: dict[ClientConnection, None] = {}
        self.active: dict[UpstreamConnection, None] = {}  # connections with a request on them
        self.partial_heads: dict[ClientConnection, None] = {}  # part of a head has come
        self.connection_pools: dict[tuple[Any, ...], Any] = {}
        self.recorder = RequestRecorder()
        self.peers: PeerWorkers | None = None  # the other workers, if there are any
        self.memory: DeviceMemory | None = None  # of devices, if there are any
        self.on_replica_failure: Callable[[Replica, bool, float], None] | None = None
        self.fleet_view: Callable[[], Sequence[ModelView]] = list  # set by the fleet, which knows
        self.shared_models: frozenset[str] = frozenset()  # models whose servers run others too, or can load them
        self.placed_models: frozenset[str] = frozenset()  # models that are placed, and those on the same servers
        self.writer = TurnWriter(loop)
        self.turns = FairTurns(loop, clock)
        self.resource_alarms: list[ResourceAlarm] = []
        self.memory_tight = False  # memory is short: every body counts; memory_left.py
        self.memory_low = False  # and so short that nothing new is taken
        self.buffers = BodyBuffers(config.limits, config.timeouts, now)
        self.draining = False
        self.sockets_shared = False  # of the listening sockets, by other workers
        self.response_fields = HeaderTable(RESPONSE_ROLES)
        self.statuses = StatusLineCache()
        self.deadlines = Deadlines(self, now)
        self._unresponsive: list[Replica] = []  # ejected just now because they give no answer
        balancer.on_silent_ejection = self._unresponsive.append
        self.configure(config, now)

    def configure(self, config: Config, now: float) -> None:
        """The parts of the configuration that are looked at for each request."""
        self.config = config
        self.limits = config.limits
        self.timeouts = config.timeouts
        self.buffers.configure(config.limits, config.timeouts)
        self.trust_rule = TrustPolicy(config)
        for client in self.clients:  # what was said yesterday of those who are still connected may not hold today
            client.identity = self.trust_rule.identify(client.forwarding.client.decode())
        self.router = Router(config)
        self.tenant_header = config.tenant_header.lower().encode()
        wanted = {name for dialect in self.router.dialects for name in dialect.wanted_headers}
        told = (*sorted(wanted), self.tenant_header) if self.tenant_header else tuple(sorted(wanted))
        self.request_fields = HeaderTable(REQUEST_ROLES, told)
        self.recorder.configure(config)
        self.deadlines.wake_by(now + SWEEP_SECONDS, now)

    # ------------------------------------------------------------------ clients

    @property
    def held(self) -> int:
        """Bytes of request bodies in memory."""
        return self.buffers.held_bytes

    def add_client(self, client: ClientConnection) -> bool:
        if (
            (self.draining and not self.sockets_shared)
            or self.memory_low
            or len(self.clients) >= self.limits.connections
        ):
            return False
        self.clients[client] = None
        return True

    def remove_client(self, client: ClientConnection) -> None:
        self.clients.pop(client, None)
        self.partial_heads.pop(client, None)

    def prepare(self, exchange: Exchange) -> None:
        """What the head alone tells; the rest is known when the body is there. Raises BadHead."""
        route = exchange.route
        if route.host:
            exchange.header_lines = [line for line in exchange.header_lines if line[:5].lower() != b"host:"]
            exchange.header_lines.append(b"host: " + route.host)
            exchange.host = route.host
        add_trace_ids(exchange)
        recorder = self.recorder
        if recorder.traces and (exchange.has_traceparent or exchange.trace_lines[-19:-3] < recorder.trace_threshold):
            recorder.tracer.begin(exchange)
        exchange.forwarded_lines = exchange.client.forwarding.lines_for(exchange)
        if exchange.has_options and exchange.wanted_headers is not None:
            apply_request_options(exchange, exchange.wanted_headers, exchange.started_at)
        if self.draining:
            exchange.close = True

    def submit(self, exchange: Exchange, now: float) -> None:
        """The request can be decided on: its body is there, or as much of it as may be kept."""
        route = exchange.route
        dialect, call = route.dialect, route.call
        if call.local:
            answer = dialect.local_reply(call, route.path, self.fleet_view())
            if answer is not None:
                self._reply(exchange, answer, now)
                return
        told = exchange.wanted_headers
        body = exchange.body
        if call.reads_body and body:
            whole = body[0] if len(body) == 1 else b"".join(body)
            if exchange.body_complete:
                peek = dialect.read_body(call, whole, told or {})
            else:
                peek = dialect.estimate_body(call, max(exchange.length, exchange.body_size), whole, told or {})
        else:
            peek = dialect.estimate_body(call, max(exchange.length, 0))
        exchange.features = peek.features
        exchange.kind = call.kind
        if dialect.knows_streams:
            exchange.streams = peek.streams
        if exchange.key is None:
            exchange.key = peek.key
        name = route.model or peek.model
        twice = bool(route.model and peek.model) or bool(route.other_dialect_model)
        if told is not None and b"steelyard-model" in told:
            name = told[b"steelyard-model"].decode("utf-8", "replace")
            twice = True
        self._identify_tenant(exchange)
        model = self.router.resolve(name)
        if route.control and (route.control == FORBIDDEN_CONTROL or model in self.placed_models):
            exchange.client.fail(exchange, local_replies.MODEL_CONTROL, now)
            return
        if model is None:
            self._reject_unknown_model(exchange, name, now)
            return
        exchange.model = model
        shared = bool(self.shared_models) and model in self.shared_models
        problem = mismatch(exchange, peek, self.router, shared=shared) if twice or shared else None
        if problem is not None:
            exchange.client.fail(exchange, problem, now)
            return
        settings = self.router.models[model]
        if route.health_request and settings.runtime is not None:
            if not self.balancer.pool(model).members:
                self._reply_scaled_to_zero(exchange, now)
                return
            self.recorder.stats[model].health_requests += 1
        exchange.stats = self.recorder.stats[model]
        exchange.replayable = exchange.body_complete and not exchange.upgrade
        idempotent = call.idempotent if settings.idempotent is None else settings.idempotent
        exchange.idempotent = idempotent and exchange.replayable
        if settings.timeout is not None:
            named = exchange.deadline < INFINITY or exchange.first_byte_by < INFINITY
            if not (named and exchange.client.identity.trusted):
                exchange.first_byte_by = min(exchange.first_byte_by, exchange.started_at + settings.timeout)
        self._submit_to_balancer(exchange, now)

    def _identify_tenant(self, exchange: Exchange) -> None:
        """Whose it is, and how urgent it may be: by who its client is, and what that client may say (rights.py)."""
        rights = exchange.client.identity
        exchange.tenant = rights.tenant
        exchange.fair_share_key = rights.share
        told = exchange.wanted_headers
        if told is not None:
            if self.tenant_header and not rights.tenant:
                exchange.tenant = told.get(self.tenant_header, b"")[:256].decode("latin-1")
                if rights.trusted:
                    exchange.fair_share_key = exchange.tenant
            if exchange.fair_share_key and exchange.key is not None and b"steelyard-session" in told:
                exchange.key = session_key(exchange.fair_share_key, exchange.key)
        if exchange.priority > self.trust_rule.lowest_ceiling:
            exchange.priority = min(exchange.priority, self.trust_rule.ceiling(rights, exchange.tenant))

    def _reply(self, exchange: Exchange, answer: LocalReply, now: float) -> None:
        """The gateway's own."""
        exchange.status = answer.status
        message = local_replies.encode_reply(
            answer, head=exchange.route.is_head, close=exchange.close, old=exchange.http10
        )
        exchange.bytes_out = len(message)
        self.writer.write(exchange.client.transport, message)
        self.finished(exchange, "", now)
        exchange.client.response_done(exchange, now)

    def _reply_scaled_to_zero(self, exchange: Exchange, now: float) -> None:
        """A look at a model that has no replica, which would be started for a request."""
        if exchange.route.health_request == PROBE:
            self._reply(exchange, SCALED_TO_ZERO_REPLY, now)
        else:
            self._reject(exchange, Reject(exchange, Reason.NO_REPLICA), now)

    def _reject_unknown_model(self, exchange: Exchange, name: str, now: float) -> None:
        if name:
            problem = local_replies.UNKNOWN_MODEL
        elif exchange.body_complete:
            problem = local_replies.NO_MODEL
        else:
            problem = local_replies.MODEL_BEYOND_BUFFER
        exchange.client.fail(exchange, problem, now)

    # ------------------------------------------------------------------ decisions

    def _submit_to_balancer(self, exchange: Exchange, now: float) -> None:
        if self.recorder.samples_decisions:
            self.recorder.sample_decision(exchange, now)
        if self.peers is not None:
            self.peers.refresh(now)
        decision = self.balancer.submit(exchange, now)
        if type(decision) is Send:
            self._dispatch(exchange, decision.replica, now)
        elif type(decision) is Reject:
            if exchange.observer is not None:
                exchange.observer.not_placed(exchange, now)
            self._reject(exchange, decision, now)
            if self.memory is not None:
                self.memory.request_rejected(exchange.model, now)
        elif not exchange.held_bytes and not self.buffers.hold(exchange, exchange.body_size, now):
            exchange.outcome = model_stats.REFUSED
            exchange.client.fail(exchange, self.buffers.full_reply, now)
        else:
            if exchange.observer is not None:
                exchange.observer.not_placed(exchange, now)
            if self.peers is not None:
                self.deadlines.wake_by(self.peers.next_poll(now), now)
            if self.memory is not None:
                self.memory.request_waiting(exchange.model, now)
        due = exchange.deadline if exchange.deadline < exchange.first_byte_by else exchange.first_byte_by
        if due < INFINITY and exchange.phase is not DONE:
            self.deadlines.add(exchange, due, now)
        if self.balancer.wake < self.deadlines.timer_at:
            self.deadlines.wake_by(self.balancer.wake, now)

    def execute(self, decisions: Sequence[Decision], now: float) -> None:
        for decision in decisions:
            exchange = decision.request
            assert isinstance(exchange, Exchange)
            if type(decision) is Send:
                self._dispatch(exchange, decision.replica, now, decision.hedged)
            elif type(decision) is Reject:
                self._reject(exchange, decision, now)
            elif type(decision) is Cancel:
                self._cancel(exchange, decision.replica, now)
            elif self.peers is not None:
                self.deadlines.wake_by(self.peers.next_poll(now), now)
        if self.balancer.wake < self.deadlines.timer_at:
            self.deadlines.wake_by(self.balancer.wake, now)

    def _dispatch(self, exchange: Exchange, replica: Replica, now: float, hedged: bool = False) -> None:
        self.publish_load(replica)
        exchange.replica_id = replica.id
        upstream = replica.context
        connection = upstream.pool.acquire(INFINITY if exchange.idempotent else MAX_IDLE_SECONDS_UNSAFE, now)
        if hedged:
            exchange.hedge_upstream = connection
        else:
            exchange.upstream = connection
            exchange.dispatched_at = exchange.dispatched_at or now
        if exchange.observer is not None:
            exchange.observer.dispatched(exchange, replica, now, hedged)
        if self.memory is not None and replica.residency is not None and exchange.attempt is not None:
            self.memory.dispatched(replica, exchange.attempt.predicted, now)
        connection.assign(exchange, replica, now)

    def _reject(self, exchange: Exchange, reject: Reject, now: float) -> None:
        exchange.outcome = model_stats.REFUSED
        problem = local_replies.reject_reply(reject)
        if problem.fault == OVERLOAD and exchange.pool is not None and not exchange.pool.members:
            exchange.fault = REPLICA  # what it waited for in vain is not that others were served
        exchange.client.fail(exchange, problem, now, reject.retry_after)

    def _cancel(self, exchange: Exchange, replica: Replica, now: float) -> None:
        self.publish_load(replica)
        replica.context.count_outcome(Outcome.CANCELLED.label)
        for connection in (exchange.upstream, exchange.hedge_upstream):
            if connection is not None and connection.replica is replica and connection.exchange is exchange:
                self._detach(exchange, connection)
                connection.cancel()
                if exchange.observer is not None:
                    how = "cancelled" if exchange.outcome else "lost"
                    exchange.observer.attempt_lost(exchange, replica, how, now)
                return

    def _detach(self, exchange: Exchange, connection: UpstreamConnection) -> None:
        if exchange.upstream is connection:
            exchange.upstream, exchange.hedge_upstream = exchange.hedge_upstream, None
        elif exchange.hedge_upstream is connection:
            exchange.hedge_upstream = None

    def publish_load(self, replica: Replica) -> None:
        """A replica's number of requests changed: the other workers should know."""
        if self.peers is not None:
            self.peers.publish(replica)

    # ------------------------------------------------------------------ what happened

    def response_complete(self, exchange: Exchange, replica: Replica, now: float) -> None:
        """The answer has been passed on to its last byte."""
        try:
            if exchange.phase is RUNNING:
                self._attempt_complete(exchange, replica, now)
        finally:  # a user's own policy may have raised: the request is over all the same
            self.finished(exchange, "", now)

    def _attempt_complete(self, exchange: Exchange, replica: Replica, now: float) -> None:
        status = exchange.status
        # How long a tunnel was open tells nothing of the model.
        outcome = OK if status < 400 and status != 101 else Outcome.CLIENT_ERROR if status >= 400 else Outcome.CANCELLED
        if self.peers is not None and replica.limit < INFINITY:
            self.peers.yield_to_longest_queue(replica, exchange.model, now)
        decisions = self.balancer.finish(exchange, outcome, now, replica=replica)
        self.publish_load(replica)
        if status >= 400 or status == 101:
            replica.context.count_outcome(outcome.label)
        if decisions:
            self.execute(decisions, now)

    def error_response(
        self, exchange: Exchange, connection: UpstreamConnection, outcome: Outcome, status: int, now: float
    ) -> bool:
        """A replica answered with an error. True: nobody else will try, so the client gets this answer."""
        if outcome is OUT_OF_MEMORY and self.memory is not None:
            self.memory.out_of_memory(exchange, connection.replica, "said so", now)
        if exchange.observer is not None:
            exchange.observer.attempt_lost(exchange, connection.replica, outcome.label, now, status)
        connection.replica.context.record_failure(outcome.label, f"HTTP {status}", now)
        decisions = self.balancer.finish(exchange, outcome, now, replica=connection.replica, status=status)
        self.publish_load(connection.replica)
        self.report_failure(connection.replica, now)
        if exchange.phase is DONE:
            mine = [d for d in decisions if d.request is exchange]
            if mine:  # a refusal, because there is no other replica: the replica's own words say more
                decisions = [d for d in decisions if d.request is not exchange]
            self.execute(decisions, now)
            return True
        self._detach(exchange, connection)
        connection.exchange = None
        self.execute(decisions, now)
        return False

    def attempt_ended(
        self, exchange: Exchange, connection: UpstreamConnection, outcome: Outcome, problem: ErrorReply, now: float
    ) -> None:
        """An attempt failed before the client saw anything of it."""
        self._detach(exchange, connection)
        other = exchange.upstream
        if exchange.observer is not None:
            exchange.observer.attempt_lost(exchange, connection.replica, outcome.label, now)
        if other is not None and not outcome.failed:
            # It was not this replica's fault, and another attempt runs: that one goes on alone.
            self.execute(self.balancer.response_started(exchange, other.replica, now), now)
            return
        if outcome is Outcome.CONNECTION_LOST and self.memory is not None and connection.peer_closed:
            self.memory.connection_lost(exchange, connection.replica, now)
        if outcome.failed:
            connection.replica.context.record_failure(outcome.label, problem.code, now)
        else:
            connection.replica.context.count_outcome(outcome.label)
        decisions = self.balancer.finish(exchange, outcome, now, replica=connection.replica)
        self.publish_load(connection.replica)
        if exchange.phase is DONE and not any(d.request is exchange for d in decisions):
            exchange.outcome = model_stats.FAILED
            exchange.client.fail(exchange, problem, now)
        self.execute(decisions, now)
        if outcome.failed:
            self.report_failure(connection.replica, now)

    def report_failure(self, replica: Replica, now: float, *, refused: bool = False) -> None:
        """It failed in a way that a probe should look at."""
        if refused and self.memory is not None:
            self.memory.replica_gone(replica, now)
        if self.on_replica_failure is not None:
            self.on_replica_failure(replica, refused, now)

    def trial_passed(self, replica: Replica, now: float) -> None:
        """It answers: the first byte is enough, an answer may take minutes."""
        if replica.state is READY:
            self.execute(self.balancer.report(replica.id, Event.LOADED, replica.context.model, now=now), now)

    def read_load_report(self, exchange: Exchange, replica: Replica, told: bytes, status: int, now: float) -> None:
        """An answer has begun, perhaps with a load report (ORCA)."""
        upstream = replica.context
        counted = self.memory is not None and replica.residency is not None
        soon = now < upstream.load_at + MIN_LOAD_REPORT_SECONDS
        load = read_orca(told) if told and (counted or not soon) else None
        if self.memory is not None and counted:
            self.memory.response_started(replica, exchange, load, status)
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
        """It gives no answer: what waits for its first byte and may be sent elsewhere is sent elsewhere."""
        for connection in [c for c in self.active if c.replica is replica]:
            exchange = connection.exchange
            if exchange is None or exchange.response_started or exchange.hedge_upstream is not None:
                continue
            if exchange.phase is RUNNING and self.balancer.can_fail_over(exchange, now):
                connection.on_timeout(now)

    def response_truncated(self, exchange: Exchange, connection: UpstreamConnection, now: float) -> None:
        """The answer broke off: the client's connection breaks off too."""
        self._detach(exchange, connection)
        decisions: Sequence[Decision] = ()
        if exchange.phase is RUNNING:
            if self.memory is not None and connection.peer_closed:
                self.memory.connection_lost(exchange, connection.replica, now)
            # A client that does not read its answer makes the replica wait: that is no failure of the replica.
            outcome = Outcome.CANCELLED if connection.paused else Outcome.TRUNCATED
            if outcome.failed:
                connection.replica.context.record_failure(outcome.label, outcome.label, now)
            decisions = self.balancer.finish(exchange, outcome, now, replica=connection.replica)
            self.publish_load(connection.replica)
        exchange.outcome = model_stats.FAILED
        exchange.fault = REPLICA
        self.finished(exchange, "truncated", now)
        exchange.client.exchange = None
        exchange.client.abort_response(exchange)
        self.execute(decisions, now)

    def settle(self, exchange: Exchange, connection: UpstreamConnection, now: float) -> None:
        """Of two attempts this one answers first."""
        self.execute(self.balancer.response_started(exchange, connection.replica, now), now)

    def move_attempt(self, exchange: Exchange, old: UpstreamConnection, new: UpstreamConnection, now: float) -> None:
        """The same attempt on another connection."""
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
            self.settle(exchange, connection, now)
        exchange.status = 101
        exchange.response_started = exchange.close = True
        exchange.first_byte = now
        exchange.outcome = model_stats.OK  # whoever closes it, and however long it lasted
        connection.state = TUNNEL
        connection.touch(now)
        client = exchange.client
        lines = (*head.lines, connection.replica.context.label, b"connection: upgrade\r\nupgrade: " + head.upgrade)
        self.writer.write(client.transport, b"\r\n".join((*lines, b"", rest)))
        client.tunnel = connection
        if client.pending:
            self.writer.write(connection.transport, client.take_pending())
            client.resume_pipeline(now)

    def client_gone(self, exchange: Exchange, now: float) -> None:
        """The client left."""
        exchange.outcome = exchange.outcome or model_stats.CANCELLED
        self.cancel(exchange, now)
        self.finished(exchange, "client_left", now)

    def cancel(self, exchange: Exchange, now: float) -> None:
        """Stop whatever runs or waits for it."""
        if exchange.phase in (WAITING, RUNNING):
            self.execute(self.balancer.cancel(exchange, now), now)
        for connection in (exchange.upstream, exchange.hedge_upstream):
            if connection is not None and connection.exchange is exchange:
                connection.cancel()
        exchange.upstream = exchange.hedge_upstream = None

    def finished(self, exchange: Exchange, reason: str, now: float) -> None:
        """The request is over, one way or another: record it, and hold nothing of it."""
        if exchange.deadline_entry is not None:
            self.deadlines.remove(exchange)
        if exchange.held_bytes:
            self.buffers.release(exchange)
        exchange.body = []
        self.recorder.finished(exchange, reason, now)
        exchange.upstream = exchange.hedge_upstream = None

    # ------------------------------------------------------------------ time

    def wake_now(self, now: float) -> None:
        """Something has changed by which requests that wait may go."""
        self.balancer.wake = 0.0
        self.deadlines.wake_by(now, now)

    def next_poll(self, now: float) -> float:
        """When to look at the other workers' load even though nothing happens here."""
        return self.peers.next_poll(now) if self.peers is not None else INFINITY

    def expire(self, now: float) -> None:
        """Carry out what the balancer has waited for."""
        if self.peers is not None:
            self.peers.refresh(now)
        self.execute(self.balancer.expire(now), now)
        while self._unresponsive:
            self.fail_over(self._unresponsive.pop(), now)

    def deadline_passed(self, exchange: Exchange, now: float) -> None:
        """Its deadline passed while it ran. An answer that has begun may go on."""
        if exchange.response_started or exchange.phase is not RUNNING:
            return
        exchange.outcome = model_stats.FAILED
        exchange.fault = LATE
        running = [c for c in (exchange.upstream, exchange.hedge_upstream) if c is not None]
        if len(running) == 1:  # of two, neither can be told to be at fault
            replica = running[0].replica
            failed = replica.failed
            timeout = self.router.models[exchange.model].timeout
            ours = timeout is not None and now >= exchange.started_at + timeout
            # The operator's timeout, or the client's own choice.
            outcome = Outcome.DEADLINE_EXCEEDED if ours else Outcome.CLIENT_DEADLINE_EXCEEDED
            decisions = self.balancer.finish(exchange, outcome, now, replica=replica)
            if replica.failed > failed:  # far past its estimate
                replica.context.record_failure(Outcome.TIMEOUT.label, local_replies.DEADLINE_EXCEEDED.code, now)
            else:
                replica.context.count_outcome(Outcome.DEADLINE_EXCEEDED.label)
            self.publish_load(replica)
            self.execute(decisions, now)
        exchange.client.fail(exchange, local_replies.DEADLINE_EXCEEDED, now)

    def sweep(self, now: float) -> None:
        """Close connections whose time is up, and flush the logs."""
        for client in [c for c in self.clients if c.expires <= now]:
            client.on_timeout(now)
        self.buffers.sweep(now)
        for connection in [c for c in self.active if c.expires <= now]:
            connection.on_timeout(now)
        for endpoint in self.connection_pools.values():
            endpoint.sweep(now)
        self.recorder.flush()

    # ------------------------------------------------------------------ the end

    def drain(self, *, relieved: bool = False) -> None:
        """Each connection ends with the answer in progress; an idle one soon, or, `relieved`, with its next answer."""
        self.draining = True
        self.sockets_shared = relieved
        now = self.clock()
        for client in list(self.clients):
            client.drain(now)

    def reject_pending(self, *, hopeless: bool = False) -> None:
        """Whoever has nothing of an answer yet is told to try again elsewhere; `hopeless`: only those who wait for a
        model that has no replica."""
        now = self.clock()
        left = [client.exchange for client in self.clients if client.exchange is not None]
        waiting = [e for e in left if e.phase is WAITING]
        if hopeless:
            waiting = [e for e in waiting if e.pool is not None and not e.pool.members]
        others = [] if hopeless else [e for e in left if e.phase is not WAITING and not e.response_started]
        for exchange in waiting + others:  # who waits goes first: no place is to be taken that another leaves
            exchange.close = True
            exchange.client.fail(exchange, local_replies.STOPPING, now)

    def abort_all(self) -> None:
        """Time is up: whatever still runs or waits fails, and that is the gateway's fault."""
        now = self.clock()
        for client in list(self.clients):
            exchange = client.exchange
            if exchange is not None:
                client.exchange = None
                self.cancel(exchange, now)
                exchange.outcome = exchange.outcome or model_stats.FAILED
                exchange.fault = exchange.fault or GATEWAY
                self.finished(exchange, local_replies.STOPPING.code, now)
            client.transport.abort()

    def close(self) -> None:
        """The process ends: whoever is still connected is cut off."""
        self.abort_all()
        for connection in list(self.active):
            connection.cancel()
        for endpoint in self.connection_pools.values():
            endpoint.close()
        self.deadlines.close()
        self.recorder.close()
