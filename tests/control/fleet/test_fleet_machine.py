"""Whatever happens in whatever order: all workers believe what the supervisor believes, nobody is used who was not seen
ready, and nobody who is well is kept out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import uvloop
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steelyard.config import Config, ReplicaConfig
from steelyard.control.supervisor.fleet_admin import FleetAdmin
from steelyard.core.errors import SteelyardError
from steelyard.core.replica import Event
from steelyard.link.messages import ReplicaFailure

from ..fakes import InProcessWorker, Played, made, played

IDS, PORTS = ("a", "b"), (9, 10)
FLEET_EVENTS = (
    *("found", "registers", "restarts", "leaves", "added", "removed", "drains", "undrains"),
    *("loads", "is_ready", "is_lost", "is_another_process"),
)
ids, ports = st.sampled_from(IDS), st.sampled_from(PORTS)
listed = st.dictionaries(ids, ports)
fleet_event = st.tuples(st.sampled_from(FLEET_EVENTS), ids, st.sampled_from([0, *PORTS]))


def config(replicas: dict[str, int], health: bool, refused: bool = False) -> Config:
    names = ", ".join(f"{{id: {id}, url: 'http://127.0.0.1:{port}'}}" for id, port in replicas.items())
    more = "refused: {}, " if refused else ""
    return made(f"models: {{{more}m: {{health: {{enabled: {str(health).lower()}}}, replicas: [{names}]}}}}")


def replica(id: str, port: int) -> ReplicaConfig:
    return ReplicaConfig(url=f"http://127.0.0.1:{port}", id=id)


class Lifecycles(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = uvloop.new_event_loop()
        self.context = played(config({"a": 9}, health=True), workers=2)
        self.stage: Played = self.loop.run_until_complete(self.context.__aenter__())
        self.operating = FleetAdmin(self.stage.fleet, self.stage.controllers, self.stage.worker_pool, None, None)  # type: ignore[arg-type]
        self.changing: asyncio.Task[str] | None = None
        self.drained: set[tuple[str, str]] = set()

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        """At once: nothing that is asked of these workers has to be waited for."""
        with suppress(SteelyardError, StopIteration):
            work.send(None)
            raise AssertionError("it waits for something")

    def settle(self) -> None:
        self.loop.run_until_complete(self.stage.settle())
        self.drained &= self.stage.fleet.members.by_key().keys()

    # ------------------------------------------------------------------ what may happen in one turn

    def found(self, id: str, port: int) -> None:
        self.stage.fleet.members.discovered("m", (replica(id, port),) if port else ())

    def registers(self, id: str, port: int) -> None:
        self.do(self.operating.register("m", replica(id, port or 9), 10.0, "x"))

    def restarts(self, id: str, port: int) -> None:
        self.do(self.operating.register("m", replica(id, port or 9), 10.0, "y"))

    def leaves(self, id: str, port: int) -> None:
        self.do(self.operating.deregister("m", id, ""))

    def added(self, id: str, port: int) -> None:
        self.do(self.operating.add("m", replica(id, port or 9)))

    def removed(self, id: str, port: int) -> None:
        self.do(self.operating.remove("m", id))
        self.drained.discard(("m", id))

    def drains(self, id: str, port: int) -> None:
        if self.stage.fleet.members.registry.find("m", id) is not None:
            self.drained.add(("m", id))
        self.do(self.operating.drain("m", id))

    def undrains(self, id: str, port: int) -> None:
        self.do(self.operating.undrain("m", id))
        if ("m", id) not in self.stage.fleet.health.drained:
            self.drained.discard(("m", id))

    def loads(self, id: str, port: int) -> None:
        self.stage.prober.sees(("m", id), Event.LIVE)

    def is_ready(self, id: str, port: int) -> None:
        self.stage.prober.sees(("m", id))

    def is_lost(self, id: str, port: int) -> None:
        self.stage.prober.sees(("m", id), Event.LOST)

    def is_another_process(self, id: str, port: int) -> None:
        self.stage.fleet.health.restarted(("m", id))

    @rule(what=st.lists(fleet_event, min_size=1, max_size=4))
    def happens_at_once(self, what: list[tuple[str, str, int]]) -> None:
        for name, id, port in what:
            getattr(self, name)(id, port)
        self.settle()

    @rule(seconds=st.sampled_from([1.0, 4.0, 15.0]), then=st.sampled_from(FLEET_EVENTS), id=ids, port=ports)
    def time_passes(self, seconds: float, then: str, id: str, port: int) -> None:
        """And in the very turn of the last look something happens."""
        self.stage.pass_time(seconds)
        getattr(self, then)(id, port)
        self.settle()

    # ------------------------------------------------------------------ configurations

    @precondition(lambda self: self.changing is None)
    @rule(replicas=listed, health=st.booleans(), refused=st.booleans())
    def a_configuration_comes(self, replicas: dict[str, int], health: bool, refused: bool) -> None:
        self.loop.run_until_complete(self.stage.fleet.configure(config(replicas, health, refused)))
        self.settle()

    @precondition(lambda self: self.changing is None)
    @rule(replicas=listed, health=st.booleans(), refused=st.booleans())
    def a_configuration_is_on_its_way(self, replicas: dict[str, int], health: bool, refused: bool) -> None:
        self.stage.worker_pool.slow = True
        self.changing = self.loop.create_task(self.stage.fleet.configure(config(replicas, health, refused)))
        self.settle()

    @precondition(lambda self: self.changing is not None)
    @rule()
    def it_arrives(self) -> None:
        self.stage.worker_pool.slow = False
        self.stage.worker_pool.answer()
        assert self.changing is not None
        self.loop.run_until_complete(self.changing)
        self.changing = None
        self.settle()

    # ------------------------------------------------------------------ workers

    @rule(id=ids, worker=st.integers(0, 1))
    def a_worker_is_refused(self, id: str, worker: int) -> None:
        """As the worker does it: it takes it out, and says so."""
        mine = self.stage.worker_pool.workers[worker]
        assert mine.proxy is not None
        found = mine.proxy.balancer.pool("m").replicas.get(id)
        if found is not None and found.context.probed and found.state.value in ("ready", "ejected"):
            mine.proxy.balancer.report(id, Event.LOST, "m", now=0.0)
            self.stage.fleet.worker_notice(ReplicaFailure("m", id, True))
        self.settle()

    @rule(worker=st.integers(0, 1))
    def a_worker_is_replaced(self, worker: int) -> None:
        before: InProcessWorker = self.stage.worker_pool.workers[worker]
        assert before.proxy is not None
        before.proxy.close()
        self.stage.worker_pool.hire(worker)
        self.settle()

    # ------------------------------------------------------------------ what must hold

    @precondition(lambda self: self.changing is None)
    @rule()
    def everybody_is_well(self) -> None:
        """Then everybody who may is used, by all workers."""
        self.stage.pass_time(0.5)  # one that a source names now which needs no lease is taken back at the next look
        self.settle()
        fleet = self.stage.fleet
        for key in list(self.stage.prober.targets):
            self.stage.prober.sees(key)
        self.settle()
        for key, member in fleet.members.by_key().items():
            lease = fleet.registrations.leases.lease(key)
            leaves = member.source == "registration" and lease is not None and lease.lapsed
            if key not in fleet.health.drained and not leaves:
                assert self.stage.everywhere(key) == {"ready"}, key

    @invariant()
    def workers_believe_what_the_supervisor_believes(self) -> None:
        if self.changing is not None:
            return
        self.settle()
        fleet = self.stage.fleet
        statuses = {key: status.state.value for key, status in fleet.health.statuses.items()}
        urls = {key: member.settings.url for key, member in fleet.members.by_key().items()}
        for worker in self.stage.worker_pool.workers.values():
            assert worker.urls() == urls
            states = worker.states()
            # After a refused configuration those that were to leave are looked at anew, and go on meanwhile.
            assert {key: states[key] if state != "starting" else state for key, state in statuses.items()} == statuses
            assert states.keys() == statuses.keys()

    @invariant()
    def nobody_is_used_who_was_not_seen_ready(self) -> None:
        prober = self.stage.prober
        for worker in self.stage.worker_pool.workers.values():
            urls = worker.urls()
            for key, state in worker.states().items():
                assert worker.proxy is not None
                if state == "ready" and worker.proxy.balancer.pool(key[0]).find(key[1]).context.probed:
                    assert prober.was_ready(key, urls[key]), (key, urls[key])

    @invariant()
    def whom_an_operator_drained_is_not_used(self) -> None:
        if self.changing is not None:
            return
        self.settle()
        for worker in self.stage.worker_pool.workers.values():
            states = worker.states()
            for key in self.drained:
                assert states.get(key, "gone") in ("draining", "gone", "starting"), key

    def teardown(self) -> None:
        if self.changing is not None:
            self.it_arrives()
        self.loop.run_until_complete(self.context.__aexit__(None, None, None))
        self.loop.close()


TestLifecycles = Lifecycles.TestCase
TestLifecycles.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
