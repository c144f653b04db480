"""The carrier: connects clients, the balancer and replicas. It carries out what the balancer decides, and tells it what
happened.

One timer serves all requests (the alarm): the balancer's own wake-up, deadlines of running requests, and a sweep over
connections whose time is up.
"""

from __future__ import annotations

import asyncio
from asyncio import Transport
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ..config import Config
from ..config import Tracing as TracingSettings
from ..core.balancer import Balancer
from ..core.decision import Cancel, Decision, Reject, Send
from ..core.outcome import Outcome
from ..core.reason import Reason
from ..core.replica import Event, Replica, State
from ..core.request import INFINITY, Phase
from ..core.slo import GATEWAY, LATE, NOTHING_PROMISED, OVERLOAD, REPLICA
from ..protocols.base import Answer, ModelView
from ..protocols.load import read_orca
from . import accounts, answers
from .access_log import AccessLog
from .accounts import Account
from .answers import Failure
from .buffers import Buffers
from .composing import identify
from .exchange import Exchange
from .fields import REQUEST_ROLES, RESPONSE_ROLES, Fields
from .log_line import JsonLines
from .looks import AT_REST, PROBE
from .model_control import NEVER
from .model_names import mismatch
from .response_head import ResponseHead, StatusLines
from .rights import TrustRule, session_of
from .routing import Router
from .shortages import Shortage
from .turns import Turns
from .upstream import TUNNEL, ReplicaConnection
from .wishes import take_in

if TYPE_CHECKING:
    from .client import ClientConnection
    from .decision_log import DecisionLog
    from .memory import Memory
    from .neighbours import Neighbours
    from .spans import Tracing

SOONEST: Final = 0.0005  # seconds: never a busy loop, whatever is due
SWEEP: Final = 0.25  # seconds between looks at connections whose time may be up
SMALL: Final = 16 << 10  # bytes that may wait for the end of the turn; more must be able to stop their source at once
SPARE: Final = 1024  # deadlines of requests that are over, kept before they are cleared out
LOAD_EVERY: Final = 0.1  # seconds: a load report that comes sooner after another is not read
LASTING: Final = 5.0  # seconds for which one holds
ALL: Final = b"g"  # above all numbers in hexadecimal digits
FRESH: Final = 1.0  # seconds: a connection unused for longer may be about to be closed by its server


class Carrier:
    def __init__(self, loop: asyncio.AbstractEventLoop, balancer: Balancer, config: Config) -> None:
        self.loop = loop
        self.balancer = balancer
        self.clients: dict[ClientConnection, None] = {}
        self.active: dict[ReplicaConnection, None] = {}  # connections with a request on them
        self.heads_began: dict[ClientConnection, None] = {}  # part of a head has come
        self.endpoints: dict[tuple[Any, ...], Any] = {}
        self.accounts: dict[str, Account] = {}
        self.unrouted = Account()  # what could not be read, or named no model of ours
        self._log: AccessLog | None = None
        self._log_lines: JsonLines | None = None
        self._tracing: Tracing | None = None
        self._traced_below = b""  # see `_is_drawn`
        self.tracing_settings: TracingSettings | None = None
        self.decisions: DecisionLog | None = None
        self.neighbours: Neighbours | None = None  # the other workers, if there are any
        self.memory: Memory | None = None  # of devices, if there are any
        self.trouble: Callable[[Replica, bool], None] | None = None  # who wants to hear of replicas in trouble
        self.fleet_view: Callable[[], Sequence[ModelView]] = list  # set by the fleet, which knows
        self.sharing: frozenset[str] = frozenset()  # models whose servers run others too, or can load them
        self.placed: frozenset[str] = frozenset()  # models that are placed, and those on the same servers
        self.unsent: list[tuple[Transport, bytes]] = []  # see `write_soon`
        self._turn_began = False
        self.turns = Turns(loop)
        self.shortages: list[Shortage] = []
        self.tight = False  # memory is short: every body counts; memory_left.py
        self.low = False  # and so short that nothing new is taken
        self.buffers = Buffers(config.limits, config.timeouts, monotonic())
        self.draining = False
        self.relieved = False  # of the listening sockets, by other workers
        self.response_fields = Fields(RESPONSE_ROLES)
        self.statuses = StatusLines()
        self._deadlines: list[list[Any]] = []  # a heap of [when, number, exchange or None once it is over]
        self._deadline_count = 0
        self._watched = 0  # of those, not over
        self._alarm_at = INFINITY
        self._alarm: asyncio.TimerHandle | None = None
        self._sweep_at = monotonic() + SWEEP
        self._silent: list[Replica] = []  # ejected just now because they give no answer
        balancer.silent = self._silent.append
        self.configure(config)

    def configure(self, config: Config) -> None:
        """The parts of the configuration that are looked at for each request."""
        self.config = config
        self.limits = config.limits
        self.timeouts = config.timeouts
        self.buffers.configure(config.limits, config.timeouts)
        self.trust_rule = TrustRule(config)
        for client in self.clients:  # what was said yesterday of those who are still connected may not hold today
            client.rights = self.trust_rule.rights(client.forwarding.client.decode())
        self.router = Router(config)
        self.tenant_header = config.tenant_header.lower().encode()
        wanted = {name for dialect in self.router.dialects for name in dialect.wanted_headers}
        told = (*sorted(wanted), self.tenant_header) if self.tenant_header else tuple(sorted(wanted))
        self.request_fields = Fields(REQUEST_ROLES, told)
        self.accounts = {name: self.accounts.get(name) or Account() for name in config.models}
        for name, model in config.models.items():
            if model.slo is not None:
                self.accounts[name].promises(model.slo.promise(), model.slo.promises())
            else:
                self.accounts[name].promises(NOTHING_PROMISED, {})
        self._wake_by(monotonic() + SWEEP)

    @property
    def log(self) -> AccessLog | None:
        return self._log

    @log.setter
    def log(self, log: AccessLog | None) -> None:
        self._log = log
        self._log_lines = log.json if log is not None else None

    @property
    def tracing(self) -> Tracing | None:
        return self._tracing

    @tracing.setter
    def tracing(self, tracing: Tracing | None) -> None:
        self._tracing = tracing
        share = tracing.share if tracing is not None else 0.0
        self._traced_below = b"%016x" % int(share * 2.0**64) if share < 1.0 else ALL

    # ------------------------------------------------------------------ bytes

    def write_soon(self, transport: Transport, data: bytes) -> None:
        """The first of this turn of the loop at once, the others together at the turn's end.

        Written one by one as they come, each write may wake a process on the other side that went to sleep after the
        last: on a virtual machine that costs more than the write. Together they find it awake.
        """
        if self._turn_began and len(data) <= SMALL:
            self.unsent.append((transport, data))
            return
        if self.unsent:
            self.flush()
        if not self._turn_began:
            self._turn_began = True
            self.loop.call_soon(self.end_turn)
        transport.write(data)

    def end_turn(self) -> None:
        self._turn_began = False
        if self.unsent:
            self.flush()

    def flush(self) -> None:
        """Write what was to be written soon; also before anything else is done to a transport that may be waiting."""
        unsent, self.unsent = self.unsent, []
        for transport, data in unsent:
            try:
                if not transport.is_closing():
                    transport.write(data)
            except RuntimeError:  # shut down meanwhile; the others still wait for theirs
                pass

    # ------------------------------------------------------------------ clients

    @property
    def held(self) -> int:
        """Bytes of request bodies in memory."""
        return self.buffers.held

    def admit(self, client: ClientConnection) -> bool:
        if (self.draining and not self.relieved) or self.low or len(self.clients) >= self.limits.connections:
            return False
        self.clients[client] = None
        return True

    def dismiss(self, client: ClientConnection) -> None:
        self.clients.pop(client, None)
        self.heads_began.pop(client, None)

    def prepare(self, exchange: Exchange) -> None:
        """What the head alone tells; the rest is known when the body is there. Raises BadHead."""
        route = exchange.route
        if route.host:
            exchange.lines = [line for line in exchange.lines if line[:5].lower() != b"host:"]
            exchange.lines.append(b"host: " + route.host)
            exchange.host = route.host
        identify(exchange)
        if self._tracing is not None and (exchange.traced or self._is_drawn(exchange)):
            self._tracing.begin(exchange)
        exchange.added = exchange.client.forwarding.lines_for(exchange)
        if exchange.wishes and exchange.told is not None:
            take_in(exchange, exchange.told, exchange.began)
        if self.draining:
            exchange.close = True

    def _is_drawn(self, exchange: Exchange) -> bool:
        """Is it of the share that is traced? Its span, which `identify` has made up, is as random as a lot."""
        return exchange.names[-19:-3] < self._traced_below

    def arrive(self, exchange: Exchange) -> None:
        """The request can be decided on: its body is there, or as much of it as may be kept."""
        route = exchange.route
        dialect, call = route.dialect, route.call
        if call.local:
            answer = dialect.answer(call, route.path, self.fleet_view())
            if answer is not None:
                self._answer(exchange, answer)
                return
        told = exchange.told
        body = exchange.body
        if call.reads_body and body:
            whole = body[0] if len(body) == 1 else b"".join(body)
            if exchange.body_done:
                peek = dialect.peek(call, whole, told or {})
            else:
                peek = dialect.guess(call, max(exchange.length, exchange.body_size), whole, told or {})
        else:
            peek = dialect.guess(call, max(exchange.length, 0))
        exchange.features = peek.features
        exchange.kind = call.kind
        if dialect.tells_streams:
            exchange.streams = peek.streams
        if exchange.key is None:
            exchange.key = peek.key
        name = route.model or peek.model
        twice = bool(route.model and peek.model) or bool(route.mentioned)
        if told is not None and b"steelyard-model" in told:
            name = told[b"steelyard-model"].decode("utf-8", "replace")
            twice = True
        self._attribute(exchange)
        model = self.router.resolve(name)
        if route.control and (route.control == NEVER or model in self.placed):
            exchange.client.fail(exchange, answers.MODEL_CONTROL)
            return
        if model is None:
            self._no_model(exchange, name)
            return
        exchange.model = model
        shared = bool(self.sharing) and model in self.sharing
        problem = mismatch(exchange, peek, self.router, shared=shared) if twice or shared else None
        if problem is not None:
            exchange.client.fail(exchange, problem)
            return
        settings = self.router.models[model]
        if route.look and settings.runtime is not None:
            if not self.balancer.pool(model).members:
                self._at_rest(exchange)
                return
            self.accounts[model].looks += 1
        exchange.account = self.accounts[model]
        exchange.replayable = exchange.body_done and not exchange.upgrade
        idempotent = call.idempotent if settings.idempotent is None else settings.idempotent
        exchange.idempotent = idempotent and exchange.replayable
        if settings.timeout is not None:
            named = exchange.deadline < INFINITY or exchange.first_byte_by < INFINITY
            if not (named and exchange.client.rights.believed):
                exchange.first_byte_by = min(exchange.first_byte_by, exchange.began + settings.timeout)
        self._submit(exchange)

    def _attribute(self, exchange: Exchange) -> None:
        """Whose it is, and how urgent it may be: by who its client is, and what that client may say (rights.py)."""
        rights = exchange.client.rights
        exchange.tenant = rights.tenant
        exchange.share = rights.share
        told = exchange.told
        if told is not None:
            if self.tenant_header and not rights.tenant:
                exchange.tenant = told.get(self.tenant_header, b"")[:256].decode("latin-1")
                if rights.believed:
                    exchange.share = exchange.tenant
            if exchange.share and exchange.key is not None and b"steelyard-session" in told:
                exchange.key = session_of(exchange.share, exchange.key)
        if exchange.priority > self.trust_rule.lowest_ceiling:
            exchange.priority = min(exchange.priority, self.trust_rule.ceiling(rights, exchange.tenant))

    def _answer(self, exchange: Exchange, answer: Answer) -> None:
        """The gateway's own."""
        exchange.status = answer.status
        message = answers.whole(answer, head=exchange.route.head, close=exchange.close, old=exchange.old)
        exchange.bytes_out = len(message)
        exchange.client.write(message)
        self.close_account(exchange, "")
        exchange.client.answered(exchange)

    def _at_rest(self, exchange: Exchange) -> None:
        """A look at a model that has no replica, which would be started for a request."""
        if exchange.route.look == PROBE:
            self._answer(exchange, AT_REST)
        else:
            self._refuse(exchange, Reject(exchange, Reason.NO_REPLICA))

    def _no_model(self, exchange: Exchange, name: str) -> None:
        if name:
            problem = answers.UNKNOWN_MODEL
        elif exchange.body_done:
            problem = answers.NO_MODEL
        else:
            problem = answers.BODY_HIDES_MODEL
        exchange.client.fail(exchange, problem)

    # ------------------------------------------------------------------ decisions

    def _submit(self, exchange: Exchange) -> None:
        now = monotonic()
        if self.decisions is not None:
            self.decisions.arrived(exchange, now)
        if self.neighbours is not None:
            self.neighbours.look(now)
        decision = self.balancer.submit(exchange, now)
        if type(decision) is Send:
            self._send(exchange, decision.replica, now)
        elif type(decision) is Reject:
            self._placeless(exchange, now)
            self._refuse(exchange, decision)
            if self.memory is not None:
                self.memory.missed(exchange.model, now)
        elif not exchange.held and not self.buffers.hold(exchange, exchange.body_size):
            exchange.verdict = accounts.REFUSED
            exchange.client.fail(exchange, self.buffers.full)
        else:
            self._placeless(exchange, now)
            if self.neighbours is not None:
                self._wake_by(self.neighbours.look_again(now))
            if self.memory is not None:
                self.memory.waits(exchange.model, now)
        due = exchange.deadline if exchange.deadline < exchange.first_byte_by else exchange.first_byte_by
        if due < INFINITY and exchange.phase is not Phase.DONE:
            self._watch(exchange, due)
        if self.balancer.wake < self._alarm_at:
            self._wake_by(self.balancer.wake)

    def _placeless(self, exchange: Exchange, now: float) -> None:
        if exchange.noted is not None and self.decisions is not None:
            self.decisions.placeless(exchange, now)

    def carry_out(self, decisions: Sequence[Decision], now: float) -> None:
        for decision in decisions:
            exchange = decision.request
            assert isinstance(exchange, Exchange)
            if type(decision) is Send:
                self._send(exchange, decision.replica, now, decision.hedged)
            elif type(decision) is Reject:
                self._refuse(exchange, decision)
            elif type(decision) is Cancel:
                self._cancel(exchange, decision.replica)
            elif self.neighbours is not None:
                self._wake_by(self.neighbours.look_again(now))
        if self.balancer.wake < self._alarm_at:
            self._wake_by(self.balancer.wake)

    def _send(self, exchange: Exchange, replica: Replica, now: float, hedged: bool = False) -> None:
        self.counted(replica)
        exchange.replica_id = replica.id
        way = replica.context
        connection = way.endpoint.connection(INFINITY if exchange.idempotent else FRESH)
        if hedged:
            exchange.rival = connection
        else:
            exchange.upstream = connection
            exchange.dispatched = exchange.dispatched or now
        if exchange.span is not None:
            exchange.span.sent(exchange, replica.id, now, hedged)
        if exchange.noted is not None and self.decisions is not None:
            self.decisions.sent(exchange, replica, now, hedged)
        if self.memory is not None and replica.place is not None and exchange.flight is not None:
            self.memory.sent(replica, exchange.flight.predicted, now)
        connection.carry(exchange, replica)

    def _refuse(self, exchange: Exchange, reject: Reject) -> None:
        exchange.verdict = accounts.REFUSED
        problem = answers.refusal(reject)
        if problem.fault == OVERLOAD and exchange.pool is not None and not exchange.pool.members:
            exchange.fault = REPLICA  # what it waited for in vain is not that others were served
        exchange.client.fail(exchange, problem, reject.retry_after)

    def _cancel(self, exchange: Exchange, replica: Replica) -> None:
        self.counted(replica)
        replica.context.count(Outcome.CANCELLED.label)
        for connection in (exchange.upstream, exchange.rival):
            if connection is not None and connection.replica is replica and connection.exchange is exchange:
                self._detach(exchange, connection)
                connection.cancel()
                self._lost(exchange, replica, "cancelled" if exchange.verdict else "lost", monotonic())
                return

    def _lost(self, exchange: Exchange, replica: Replica, how: str, now: float, status: int = 0) -> None:
        """An attempt ended without an answer: for those who write it down."""
        if exchange.span is not None:
            exchange.span.lost(replica.id, how, now, status)
        if exchange.noted is not None and self.decisions is not None:
            self.decisions.lost(exchange, replica, how, now)

    def _detach(self, exchange: Exchange, connection: ReplicaConnection) -> None:
        if exchange.upstream is connection:
            exchange.upstream, exchange.rival = exchange.rival, None
        elif exchange.rival is connection:
            exchange.rival = None

    def counted(self, replica: Replica) -> None:
        """A replica's number of requests changed: the other workers should know."""
        if self.neighbours is not None:
            self.neighbours.tell(replica)

    # ------------------------------------------------------------------ what happened

    def completed(self, exchange: Exchange, replica: Replica, now: float) -> None:
        """The answer has been passed on to its last byte."""
        try:
            if exchange.phase is Phase.RUNNING:
                self._finished(exchange, replica, now)
        finally:  # a user's own policy may have raised: the request is over all the same
            self.close_account(exchange, "")

    def _finished(self, exchange: Exchange, replica: Replica, now: float) -> None:
        status = exchange.status
        # How long a tunnel was open tells nothing of the model.
        outcome = Outcome.CANCELLED if status == 101 else Outcome.OK if status < 400 else Outcome.CLIENT_ERROR
        if self.neighbours is not None and replica.limit < INFINITY:
            self.neighbours.leave_to_longer(replica, exchange.model, now)
        decisions = self.balancer.finish(exchange, outcome, now, replica=replica)
        self.counted(replica)
        if status >= 400 or status == 101:
            replica.context.count(outcome.label)
        if decisions:
            self.carry_out(decisions, now)

    def give_up(
        self, exchange: Exchange, connection: ReplicaConnection, outcome: Outcome, status: int, now: float
    ) -> bool:
        """A replica answered with an error. True: nobody else will try, so the client gets this answer."""
        if outcome is Outcome.OUT_OF_MEMORY and self.memory is not None:
            self.memory.ran_out(exchange, connection.replica, "said so", now)
        self._lost(exchange, connection.replica, outcome.label, now, status)
        connection.replica.context.failed(outcome.label, f"HTTP {status}", now)
        decisions = self.balancer.finish(exchange, outcome, now, replica=connection.replica, status=status)
        self.counted(connection.replica)
        self.suspect(connection.replica)
        if exchange.phase is Phase.DONE:
            mine = [d for d in decisions if d.request is exchange]
            if mine:  # a refusal, because there is no other replica: the replica's own words say more
                decisions = [d for d in decisions if d.request is not exchange]
            self.carry_out(decisions, now)
            return True
        self._detach(exchange, connection)
        connection.exchange = None
        self.carry_out(decisions, now)
        return False

    def attempt_ended(
        self, exchange: Exchange, connection: ReplicaConnection, outcome: Outcome, problem: Failure
    ) -> None:
        """An attempt failed before the client saw anything of it."""
        self._detach(exchange, connection)
        now = monotonic()
        other = exchange.upstream
        self._lost(exchange, connection.replica, outcome.label, now)
        if other is not None and not outcome.failed:
            # It was not this replica's fault, and another attempt runs: that one goes on alone.
            self.carry_out(self.balancer.settle(exchange, other.replica, now), now)
            return
        if outcome is Outcome.BROKEN and self.memory is not None and connection.lost:
            self.memory.broke(exchange, connection.replica, now)
        if outcome.failed:
            connection.replica.context.failed(outcome.label, problem.code, now)
        else:
            connection.replica.context.count(outcome.label)
        decisions = self.balancer.finish(exchange, outcome, now, replica=connection.replica)
        self.counted(connection.replica)
        if exchange.phase is Phase.DONE and not any(d.request is exchange for d in decisions):
            exchange.verdict = accounts.FAILED
            exchange.client.fail(exchange, problem)
        self.carry_out(decisions, now)
        if outcome.failed:
            self.suspect(connection.replica)

    def suspect(self, replica: Replica, *, refused: bool = False) -> None:
        """It failed in a way that a probe should look at."""
        if refused and self.memory is not None:
            self.memory.gone(replica, monotonic())
        if self.trouble is not None:
            self.trouble(replica, refused)

    def passed_trial(self, replica: Replica, now: float) -> None:
        """It answers: the first byte is enough, an answer may take minutes."""
        if replica.state is State.READY:
            self.carry_out(self.balancer.report(replica.id, Event.LOADED, replica.context.model, now=now), now)

    def take_in_load(self, exchange: Exchange, replica: Replica, told: bytes, status: int, now: float) -> None:
        """An answer has begun, perhaps with a load report (ORCA)."""
        way = replica.context
        counted = self.memory is not None and replica.place is not None
        soon = now < way.load_at + LOAD_EVERY
        load = read_orca(told) if told and (counted or not soon) else None
        if self.memory is not None and counted:
            self.memory.answered(replica, exchange, load, status)
        if load is None or soon or replica.state is State.GONE:
            return
        way.load_at = now
        way.load = load
        if load.requests is not None:
            engine = self.balancer.report_engine
            self.carry_out(engine(replica.id, load.requests, way.model, now=now, lasting=LASTING), now)

    def fail_over(self, replica: Replica) -> None:
        """It gives no answer: what waits for its first byte and may be sent elsewhere is sent elsewhere."""
        for connection in [c for c in self.active if c.replica is replica]:
            exchange = connection.exchange
            if exchange is None or exchange.answered or exchange.rival is not None:
                continue
            if exchange.phase is Phase.RUNNING and self.balancer.may_move(exchange, monotonic()):
                connection.time_is_up()

    def truncated(self, exchange: Exchange, connection: ReplicaConnection) -> None:
        """The answer broke off: the client's connection breaks off too."""
        self._detach(exchange, connection)
        now = monotonic()
        decisions: Sequence[Decision] = ()
        if exchange.phase is Phase.RUNNING:
            if self.memory is not None and connection.lost:
                self.memory.broke(exchange, connection.replica, now)
            # A client that does not read its answer makes the replica wait: that is no failure of the replica.
            outcome = Outcome.CANCELLED if connection.paused else Outcome.TRUNCATED
            if outcome.failed:
                connection.replica.context.failed(outcome.label, outcome.label, now)
            decisions = self.balancer.finish(exchange, outcome, now, replica=connection.replica)
            self.counted(connection.replica)
        exchange.verdict = accounts.FAILED
        exchange.fault = REPLICA
        self.close_account(exchange, "truncated")
        exchange.client.exchange = None
        exchange.client.break_off(exchange)
        self.carry_out(decisions, now)

    def settle(self, exchange: Exchange, connection: ReplicaConnection, now: float) -> None:
        """Of two attempts this one answers first."""
        self.carry_out(self.balancer.settle(exchange, connection.replica, now), now)

    def replace(self, exchange: Exchange, old: ReplicaConnection, new: ReplicaConnection) -> None:
        """The same attempt on another connection."""
        if exchange.upstream is old:
            exchange.upstream = new
        else:
            exchange.rival = new
        new.carry(exchange, old.replica)

    def tunnel(self, exchange: Exchange, connection: ReplicaConnection, head: ResponseHead, rest: bytes) -> None:
        """The replica changed protocols: from here on bytes are bytes."""
        now = monotonic()
        if exchange.rival is not None:
            self.settle(exchange, connection, now)
        exchange.status = 101
        exchange.answered = exchange.close = True
        exchange.first_byte = now
        exchange.verdict = accounts.OK  # whoever closes it, and however long it lasted
        connection.state = TUNNEL
        connection.alive()
        client = exchange.client
        lines = (*head.lines, connection.replica.context.label, b"connection: upgrade\r\nupgrade: " + head.upgrade)
        client.write(b"\r\n".join((*lines, b"", rest)))
        client.tunnel = connection
        if client.pending:
            connection.write(client.take_pending())
            client.caught_up()

    def abandon(self, exchange: Exchange) -> None:
        """The client left."""
        exchange.verdict = exchange.verdict or accounts.CANCELLED
        self.drop(exchange)
        self.close_account(exchange, "client_left")

    def drop(self, exchange: Exchange) -> None:
        """Stop whatever runs or waits for it."""
        if exchange.phase in (Phase.WAITING, Phase.RUNNING):
            now = monotonic()
            self.carry_out(self.balancer.cancel(exchange, now), now)
        for connection in (exchange.upstream, exchange.rival):
            if connection is not None and connection.exchange is exchange:
                connection.cancel()
        exchange.upstream = exchange.rival = None

    def refused(self, problem: Failure) -> None:
        """Something that was no request."""
        self.unrouted.client_error += 1

    def close_account(self, exchange: Exchange, reason: str) -> None:
        """The request is over, one way or another: count it, write it down, hold nothing of it."""
        if exchange.entry is not None:
            exchange.entry[2] = None
            exchange.entry = None
            self._watched -= 1
            if len(self._deadlines) > 2 * self._watched + SPARE:
                self._deadlines = [entry for entry in self._deadlines if entry[2] is not None]
                heapify(self._deadlines)
        if exchange.held:
            self.buffers.release(exchange)
        exchange.body = []
        account = exchange.account
        now = monotonic()
        if account is None:
            account = self.unrouted
        verdict = exchange.verdict
        if not verdict:
            status = exchange.status
            if status < 400:
                account.answered(now - exchange.began)
                verdict = accounts.OK
            else:
                verdict = accounts.CLIENT_ERROR if status < 500 and status != 429 else accounts.FAILED
                account.count(verdict)
            if status != 200:
                account.count_status(status)
        else:
            account.count(verdict)
            if exchange.status != 200:
                account.count_status(exchange.status)
        if account is not self.unrouted and not exchange.route.look:
            exchange.judgement = account.judge(exchange, verdict, now, reason)
        if self._log is not None:
            if self._log_lines is None:
                self._log.note(exchange, verdict, reason, now)
            elif self._log_lines.add(exchange, verdict, reason, now):
                self._log.flush()
        if exchange.span is not None:
            exchange.span.end(exchange, verdict, reason, now)
        if exchange.noted is not None and self.decisions is not None:
            self.decisions.ended(exchange, verdict, reason, now)
        exchange.upstream = exchange.rival = None

    # ------------------------------------------------------------------ time

    def _watch(self, exchange: Exchange, due: float) -> None:
        self._deadline_count += 1
        self._watched += 1
        exchange.entry = entry = [due, self._deadline_count, exchange]
        heappush(self._deadlines, entry)
        if due < self._alarm_at:
            self._wake_by(due)

    def look_soon(self) -> None:
        """Something has changed by which requests that wait may go."""
        self.balancer.wake = 0.0
        self._wake_by(monotonic())

    def _wake_by(self, when: float) -> None:
        if when >= self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = self.loop.call_later(max(0.0, when - monotonic()), self._ring)

    def _ring(self) -> None:
        """Whatever is due."""
        self._alarm = None
        self._alarm_at = INFINITY
        now = monotonic()
        try:
            self._do_what_is_due(now)
        finally:  # whatever went wrong with one request, the clock goes on for the others
            soonest = min(self.balancer.wake, self._sweep_at, self._deadlines[0][0] if self._deadlines else INFINITY)
            if self.neighbours is not None:
                soonest = min(soonest, self.neighbours.look_again(now))
            self._wake_by(max(soonest, now + SOONEST))

    def _do_what_is_due(self, now: float) -> None:
        if self.neighbours is not None:
            self.neighbours.look(now)
        self.carry_out(self.balancer.expire(now), now)
        while self._silent:
            self.fail_over(self._silent.pop())
        while self._deadlines and self._deadlines[0][0] <= now:
            exchange = heappop(self._deadlines)[2]
            if exchange is not None:
                exchange.entry = None
                self._watched -= 1
                self._too_late(exchange, now)
        if now >= self._sweep_at:
            self._sweep(now)

    def _too_late(self, exchange: Exchange, now: float) -> None:
        """Its deadline passed while it ran. An answer that has begun may go on."""
        if exchange.answered or exchange.phase is not Phase.RUNNING:
            return
        exchange.verdict = accounts.FAILED
        exchange.fault = LATE
        running = [c for c in (exchange.upstream, exchange.rival) if c is not None]
        if len(running) == 1:  # of two, neither can be told to be at fault
            replica = running[0].replica
            failed = replica.failed
            timeout = self.router.models[exchange.model].timeout
            ours = timeout is not None and now >= exchange.began + timeout
            outcome = Outcome.LATE if ours else Outcome.IMPATIENT  # the operator's timeout, or the client's own choice
            decisions = self.balancer.finish(exchange, outcome, now, replica=replica)
            if replica.failed > failed:  # far past its estimate
                replica.context.failed(Outcome.TIMEOUT.label, answers.DEADLINE.code, now)
            else:
                replica.context.count(Outcome.LATE.label)
            self.counted(replica)
            self.carry_out(decisions, now)
        exchange.client.fail(exchange, answers.DEADLINE)

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + SWEEP
        for client in [c for c in self.clients if c.expires <= now]:
            client.time_is_up()
        self.buffers.sweep(now)
        for connection in [c for c in self.active if c.expires <= now]:
            connection.time_is_up()
        for endpoint in self.endpoints.values():
            endpoint.sweep(now)
        if self._log is not None:
            self._log.flush()
        if self.decisions is not None:
            self.decisions.flush()

    # ------------------------------------------------------------------ the end

    def drain(self, *, relieved: bool = False) -> None:
        """Each connection ends with the answer in progress; an idle one soon, or, `relieved`, with its next answer."""
        self.draining = True
        self.relieved = relieved
        for client in list(self.clients):
            client.stop()

    def turn_away(self, *, hopeless: bool = False) -> None:
        """Whoever has nothing of an answer yet is told to try again elsewhere; `hopeless`: only those who wait for a
        model that has no replica."""
        left = [client.exchange for client in self.clients if client.exchange is not None]
        waiting = [e for e in left if e.phase is Phase.WAITING]
        if hopeless:
            waiting = [e for e in waiting if e.pool is not None and not e.pool.members]
        others = [] if hopeless else [e for e in left if e.phase is not Phase.WAITING and not e.answered]
        for exchange in waiting + others:  # who waits goes first: no place is to be taken that another leaves
            exchange.close = True
            exchange.client.fail(exchange, answers.STOPPING)

    def cut_off(self) -> None:
        """Time is up: whatever still runs or waits fails, and that is the gateway's fault."""
        for client in list(self.clients):
            exchange = client.exchange
            if exchange is not None:
                client.exchange = None
                self.drop(exchange)
                exchange.verdict = exchange.verdict or accounts.FAILED
                exchange.fault = exchange.fault or GATEWAY
                self.close_account(exchange, answers.STOPPING.code)
            client.transport.abort()

    def close(self) -> None:
        """The process ends: whoever is still connected is cut off."""
        self.cut_off()
        for connection in list(self.active):
            connection.cancel()
        for endpoint in self.endpoints.values():
            endpoint.close()
        if self._alarm is not None:
            self._alarm.cancel()
        for kept in (self._log, self.decisions, self._tracing):
            if kept is not None:
                kept.close()
