"""A small environment around the gateway where anything may happen, and what must hold in it after every step."""

from __future__ import annotations

import errno
from typing import Any

from steelyard.core.request import RequestPhase
from steelyard.gateway.exchange import DISPATCHED, QUEUED, RECEIVING, Exchange
from steelyard.gateway.proxy.upstream_connection import AWAITING_HEAD, CLOSED, CONNECTING, IDLE

from .players import Asked, Client, Replica
from .stage import Stage

LIMITS = (
    "limits: {connection_buffer_bytes: 2000, replay_bytes: 3000, body_bytes: 20000, total_buffer_bytes: 20000, "
    "connections: 6, idle_connections_per_replica: 2}"
)
TIMES = "timeouts: {header: 5s, body: 10s, idle: 20s, write: 15s, first_byte: 30s, stream_idle: 30s, total: 60s}"


def config(m: str, n: str | None = "b", concurrency: int | str = 2, more: str = "") -> str:
    models = []
    for name, ids in (("m", m), ("n", n)):
        if ids is not None:
            urls = ", ".join(f"{{url: 'http://{id}:1'}}" for id in ids)
            how = f"concurrency: {concurrency}, max_queue: 3, queue_timeout: 10s, {more}"
            models.append(f"  {name}: {{{how} replicas: [{urls}]}}")
    return "\n".join([LIMITS, TIMES, "models:", *models])


CONFIGS = [
    config("ab"),
    config("ab", concurrency=1),
    config("abc", "a", "unlimited", "hedge: {enabled: true, budget: 100%}, policy: least_connections,"),
    config("abc", "a", "unlimited", "hedge: {enabled: true, budget: 100%}, policy: round_robin,"),
    config("b", None),
    config("", "c", more="wait_for_ready: true,"),
    config("ac", "ac", more="policy: round_robin, retry: {max_attempts: 1},"),
]
NOISE = {"nonsense": b"?\r\n\r\n", "empty line": b"\r\n", "hint": b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"}
CLIENTS = ["ends", "breaks", "stops", "stops", "reads on", "reads on", "comes"]
REPLICAS = ["refuses", "lacks", "ends", "breaks", "stops", "reads on", "reads on", *NOISE]


class RandomEnvironment:
    def __init__(self) -> None:
        self.stage = Stage(CONFIGS[0])
        self.clients: list[Client] = []
        self.replicas: list[Replica] = []
        self.asked: dict[int, Asked] = {}
        self.begun: list[Exchange] = []
        self.closed: list[Exchange] = []
        self._watch()

    def _watch(self) -> None:
        proxy: Any = self.stage.proxy
        prepare, finished = proxy.intake.prepare, proxy.recorder.finished

        def begin(exchange: Exchange) -> None:
            prepare(exchange)
            self.begun.append(exchange)

        def close(exchange: Exchange, reason: str, now: float) -> None:
            assert exchange not in self.closed, "counted twice"
            self.closed.append(exchange)
            finished(exchange, reason, now)

        proxy.intake.prepare, proxy.recorder.finished = begin, close

    @property
    def present(self) -> list[Client]:
        return [client for client in self.clients if not client.gone]

    @property
    def working(self) -> list[Replica]:
        return [replica for replica in self.replicas if not replica.gone]

    # ------------------------------------------------------------------ what may happen

    def asks(
        self, which: int, method: str, kind: str, model: str, size: int, framing: str, option: str, part: float
    ) -> None:
        if len(self.present) < 3:
            self.clients.append(Client(self.stage.client()))
        if not self.present:
            return  # there are too many connections: those that end are still there
        client = self.present[which % len(self.present)]
        if client.unsent:
            client.goes_on()
            return
        asked = Asked(len(self.asked) + 1, method, old=kind == "old", bad=kind == "bad")
        self.asked[asked.id] = asked
        client.asks(asked, model, size if method in ("PUT", "POST") else 0, framing, option, part)

    def a_client_does(self, which: int, how: str) -> None:
        if not self.present:
            return
        client = self.present[which % len(self.present)]
        if how == "comes":
            self.clients.append(Client(self.stage.client()))
        elif how in ("ends", "breaks"):
            getattr(client.wire, how)()
        elif how == "stops":
            client.wire.stops_reading()
        elif how == "reads on":
            client.wire.reads_on()
        elif client.unsent:
            client.goes_on(0.5)

    def answers(self, which: int, status: str, size: int, framing: str, part: float, early: bool) -> None:
        self.accept_all()
        busy = [replica for replica in self.working if replica.unsaid or replica.listens()[0] is not None]
        if not busy:
            return
        replica = busy[which % len(busy)]
        asked, whole = replica.listens()
        if replica.unsaid:
            replica.goes_on(part)
        elif asked is not None and (whole or early):
            replica.begins(asked, whole, status, size, framing, part)

    def accept_all(self) -> None:
        for dial in [dial for dial in self.stage.loop.dials if dial.waiting]:
            self.replicas.append(Replica(dial.accept(), self.asked))

    def a_replica_does(self, which: int, how: str) -> None:
        if self.stage.dialling and how in ("refuses", "lacks"):
            self.stage.dial().fail(OSError(errno.EMFILE if how == "lacks" else errno.ECONNREFUSED, "no"))
        elif self.working:
            replica = self.working[which % len(self.working)]
            if how in ("ends", "breaks"):
                getattr(replica.wire, how)()
            elif how == "stops":
                replica.wire.stops_reading()
            elif how == "reads on":
                replica.wire.reads_on()
            elif how in NOISE and not replica.unsaid:
                replica.listens()
                replica.wire.says(NOISE[how])

    # ------------------------------------------------------------------ what must hold

    def check(self) -> None:
        self.stage.loop.settle()
        assert not self.stage.loop.problems, self.stage.loop.problems
        for client in self.clients:
            client.check()
        for replica in self.working:
            replica.listens()
        self._everything_is_somebodys()
        self._nobody_is_paused_for_nothing()
        self._what_is_kept_is_bounded()

    def _everything_is_somebodys(self) -> None:
        proxy, balancer = self.stage.proxy, self.stage.balancer
        self.stage.remember()
        served = {client.exchange for client in proxy.clients if client.exchange is not None}
        for replica in self.stage.replicas:
            assert replica.in_flight == len(replica.running_attempts)
            for attempt in replica.running_attempts:
                assert attempt.request in served
                assert attempt in (attempt.request.attempt, attempt.request.hedge)
        for model in balancer.models:
            for request in balancer.pool(model).queue.ordered():
                assert request in served
                assert request.phase is RequestPhase.WAITING
        for connection in proxy.active:
            exchange = connection.exchange
            assert exchange is not None
            assert exchange in served
            assert connection in (exchange.upstream, exchange.hedge_upstream)
            assert IDLE < connection.state < CLOSED
        assert proxy.held == sum(exchange.held_bytes for exchange in served)
        assert set(self.begun) - set(self.closed) == served
        for exchange in served:
            self._state_is_true(exchange)

    @staticmethod
    def _state_is_true(exchange: Exchange) -> None:
        """The gateway's state of a request, the balancer's, and that of its connections."""
        assert (exchange.state == RECEIVING) == (exchange.phase is RequestPhase.NEW)
        assert (exchange.state == QUEUED) == (exchange.phase is RequestPhase.WAITING)
        attempts = [c for c in (exchange.upstream, exchange.hedge_upstream) if c is not None]
        assert all(connection.exchange is exchange for connection in attempts)
        if exchange.state < DISPATCHED:
            assert attempts == []
        elif exchange.state == DISPATCHED:
            assert {c.state for c in attempts} <= {CONNECTING, AWAITING_HEAD}
            assert attempts
        else:
            (connection,) = attempts
            assert connection.state > AWAITING_HEAD

    def _nobody_is_paused_for_nothing(self) -> None:
        for client in self.clients:
            if not client.gone:
                assert client.wire.transport.paused == bool(client.wire.transport.protocol.read_pauses)
        for replica in self.working:
            connection, transport = replica.wire.transport.protocol, replica.wire.transport
            assert transport.paused <= (connection.exchange is not None and connection.exchange.client.write_paused)
        for endpoint in self.stage.proxy.connection_pools.values():
            assert len(endpoint.idle) <= 2
            assert [connection for connection in endpoint.idle if connection.exchange is not None] == []
            assert {connection.state for connection in endpoint.idle} <= {IDLE}

    def _what_is_kept_is_bounded(self) -> None:
        for wire in (*[client.wire for client in self.clients], *[replica.wire for replica in self.replicas]):
            assert wire.transport.waiting_to_be_read <= 2000 + 9000
        for client in self.stage.proxy.clients:
            assert len(client.pending) < 100_000
        assert self.stage.proxy.held <= 20_000 + 6000

    def end(self) -> None:
        """Everybody does as they should, and then all is over."""
        try:
            for wire in (*[client.wire for client in self.present], *[replica.wire for replica in self.working]):
                wire.reads_on()
            for _ in range(20):
                self.accept_all()
                for number in range(len(self.working)):
                    self.answers(number, "200 OK", 500, "sized", 1.0, early=False)
                self.check()
            for client in self.clients:
                if not client.wire.closed:
                    client.wire.breaks()
            self.stage.pass_time(5.0)
            self.check()
            self.stage.check_idle()
            assert len(self.begun) == len(self.closed)
        finally:
            self.stage.close()
