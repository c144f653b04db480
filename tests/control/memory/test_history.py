"""Whatever happens in whatever order: never is more given out than may be, and at rest only what is resident counts."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steelyard.control.memory.device_replicas import UNREACHABLE_SECONDS
from steelyard.control.memory.meters.devices import MeterReading
from steelyard.control.memory.meters.poller import MeterPoller, PolledReading
from steelyard.core.memory.ledger import Device, LedgerCells, LocalCells, MemoryLedger, Residency
from steelyard.core.replica import State
from steelyard.link.shared_ledger import SharedLedger
from steelyard.protocols.load import EngineLoad

from .making import LOADING, ON_DEMAND, READY, UNREACHABLE, Made, model

CAPACITY_BYTES, BUDGET_BYTES = 1000, 900
MODELS = {  # two that are always there, two that share a server and come and go
    "p": model(1, more="memory: {weights: 200}"),
    "s": model(2, more="memory: {weights: 100}"),
    "q": model(3, more=f"memory: {{weights: 300}}, {ON_DEMAND}"),
    "r": model(3, more=f"memory: {{weights: 400}}, {ON_DEMAND}"),
}
URLS = {"p": "http://h:1", "s": "http://h:2", "q": "http://h:3", "r": "http://h:3"}
always, on_demand = st.sampled_from("ps"), st.sampled_from("qr")
anyone, workers, amounts = st.sampled_from("psqr"), st.sampled_from([1, 2]), st.integers(0, 600)


class Played(MeterPoller):
    """Sees what the test says."""

    def __init__(self) -> None:
        super().__init__(Random(0))
        self.looks: list[PolledReading] = []

    def tick(self, now: float) -> list[PolledReading]:
        looks, self.looks = self.looks, []
        return looks


class Worker:
    def __init__(self, shared_ledger: SharedLedger, row: int, made: Made) -> None:
        self.shared_ledger = SharedLedger(os.dup(shared_ledger.fd), row)
        self.ledger = MemoryLedger(self.shared_ledger)
        self.device = self.ledger.set_device("d", made.numbers["d"], CAPACITY_BYTES, 0.1)
        self.places = {
            name: self.ledger.add_residency(self.device, URLS[name], made.column(name), permanent=name in "ps")
            for name in MODELS
        }
        self.running: list[tuple[str, int]] = []


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.meters = Played()
        models = ", ".join(f"{name}: {text}" for name, text in MODELS.items())
        self.made = Made(f"{{d: {{memory: {CAPACITY_BYTES}, headroom: 10%}}}}", f"{{{models}}}", self.meters)
        self.accounts, self.shared_ledger = self.made.accounts, self.made.shared_ledger
        self.workers = {row: Worker(self.shared_ledger, row, self.made) for row in (1, 2)}
        self.now = 100.0
        self.states = dict.fromkeys(MODELS, State.STARTING)
        self.lost_at: dict[str, float] = {}
        self.resident: set[str] = set()
        self.dead: list[tuple[int, float]] = []  # bytes, until when they count
        self.overrun = False  # what is there for sure is more than may be given out

    def teardown(self) -> None:
        self.rest()
        for worker in self.workers.values():
            worker.shared_ledger.close()
        self.shared_ledger.close()

    @property
    def device(self) -> Device:
        return self.workers[1].device

    def reserved(self) -> int:
        return self.workers[1].ledger.reserved(self.device)

    def taken(self) -> int:
        return self.workers[1].ledger.used(self.device)

    def running(self) -> int:
        alive = sum(amount for worker in self.workers.values() for _, amount in worker.running)
        return alive + sum(amount for amount, _ in self.dead)

    def models(self) -> int:
        """What counts for models: what they hold, or what their server was measured to hold with nothing running."""
        bases, idle = Counter[str](), Counter[str]()
        for name, url in URLS.items():
            bases[url] += self.made.base(name)
            idle[url] = max(idle[url], self.shared_ledger.idle[self.made.column(name)])
        return sum((bases | idle).values())

    def truth(self, before: int) -> None:
        """What was just learned of models cannot be refused; before, they held so much."""
        self.overrun = self.reserved() > BUDGET_BYTES and (self.overrun or self.models() > before)

    # ------------------------------------------------------------------ models

    @rule(name=always, state=st.sampled_from([LOADING, READY, State.EJECTED, State.DRAINING, UNREACHABLE]))
    def moves(self, name: str, state: State) -> None:
        before = self.models()
        self.accounts.state_changed((name, "a"), state, self.now)
        if state is not UNREACHABLE:
            self.resident.add(name)
        elif self.states[name] is not UNREACHABLE:
            self.lost_at[name] = self.now
        self.states[name] = state
        self.truth(before)

    @rule(name=on_demand)
    def loads(self, name: str) -> None:
        before, taken = self.made.base(name), self.taken()
        if self.accounts.reserve((name, "a"), self.accounts.footprint(name)):
            self.resident.add(name)
            if self.made.base(name) > before:
                assert self.taken() <= max(BUDGET_BYTES, taken), "what its server keeps is room there"

    @rule(name=on_demand)
    def unloads(self, name: str) -> None:
        if not any(name == each for worker in self.workers.values() for each, _ in worker.running):
            self.accounts.release((name, "a"))
            self.resident.discard(name)

    @rule(name=anyone, base=st.none() | st.integers(0, 700), held=st.none() | st.integers(0, 1200))
    def says(self, name: str, base: int | None, held: int | None) -> None:
        before = self.models()
        self.accounts.load_reported((name, "a"), EngineLoad(base=base, held=held), self.now)
        self.truth(before)

    @rule(used=st.integers(0, 1000))
    def is_looked_at(self, used: int) -> None:
        self.meters.looks.append(PolledReading("d", MeterReading(CAPACITY_BYTES, used), self.now))
        self.passes(0.5)

    # ------------------------------------------------------------------ requests

    @rule(row=workers, name=anyone, amount=amounts)
    def takes(self, row: int, name: str, amount: int) -> None:
        worker, taken = self.workers[row], self.taken()
        if name in self.resident and worker.ledger.reserve(worker.places[name], amount):
            worker.running.append((name, amount))
            # Half of the headroom may be what others keep for later.
            alone = self.shared_ledger.count(self.device.index) == 1
            assert self.taken() <= max(taken, CAPACITY_BYTES - 50 if alone else BUDGET_BYTES), (
                "what its server keeps is room there"
            )
            assert self.reserved() <= BUDGET_BYTES or not amount

    @rule(row=workers, name=anyone)
    def takes_all(self, row: int, name: str) -> None:
        worker, taken = self.workers[row], self.taken()
        if name in self.resident and (amount := worker.ledger.reserve_all(worker.places[name])):
            worker.running.append((name, amount))
            assert self.taken() <= max(BUDGET_BYTES, taken)
            assert self.reserved() <= BUDGET_BYTES

    @precondition(lambda self: any(worker.running for worker in self.workers.values()))
    @rule(data=st.data())
    def gives(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from([worker for worker in self.workers.values() if worker.running]))
        name, amount = worker.running.pop(data.draw(st.integers(0, len(worker.running) - 1)))
        worker.ledger.release(worker.places[name], amount)

    @rule(row=workers, lasting=st.floats(0.0, 100.0))
    def dies(self, row: int, lasting: float) -> None:
        worker = self.workers[row]
        for name, _ in worker.running:
            worker.shared_ledger.set_lease(self.made.column(name), self.now + lasting)
        until = self.now + min(max(lasting, 1.0), 60.0)
        self.dead += [(amount, until) for _, amount in worker.running]
        self.accounts.worker_exited(row, self.now)
        worker.shared_ledger.close()
        self.workers[row] = Worker(self.shared_ledger, row, self.made)

    # ------------------------------------------------------------------ time

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 40.0]))
    def passes(self, seconds: float) -> None:
        before = self.models()
        self.now += seconds
        self.accounts.tick(self.now)
        self.dead = [(amount, until) for amount, until in self.dead if until > self.now]
        for name in "ps":
            if self.states[name] is UNREACHABLE and self.now - self.lost_at[name] >= UNREACHABLE_SECONDS:
                self.resident.discard(name)
        self.truth(before)

    @rule()
    def rest(self) -> None:
        for worker in self.workers.values():
            while worker.running:
                name, amount = worker.running.pop()
                worker.ledger.release(worker.places[name], amount)
        self.passes(61.0)
        assert self.reserved() == self.models()
        assert self.shared_ledger.count(self.device.index) == 0

    # ------------------------------------------------------------------ always

    @invariant()
    def never_more_is_given_out_than_may_be(self) -> None:
        assert self.reserved() <= BUDGET_BYTES or self.overrun

    @invariant()
    def all_is_counted_and_nothing_else(self) -> None:
        assert self.reserved() == self.models() + self.running()
        assert all(self.made.base(name) == 0 for name in MODELS if name not in self.resident)

    @invariant()
    def a_resident_model_counts_with_its_footprint(self) -> None:
        assert all(self.made.base(name) == self.accounts.footprint(name) for name in self.resident)

    @invariant()
    def others_use_something_or_nothing(self) -> None:
        assert 0 <= self.shared_ledger.external[self.device.index] <= CAPACITY_BYTES


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class Alone(RuleBasedStateMachine):
    """The ledger of one process that shares its devices with nobody: no measured base is more than there is."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: LedgerCells = LocalCells()
        self.ledger = MemoryLedger(self.cells)
        self.device = self.ledger.set_device("d", 0, CAPACITY_BYTES, 0.1)
        self.places: list[Residency] = [
            self.ledger.add_residency(self.device, f"s{column // 2}", column) for column in range(4)
        ]
        self.running: list[tuple[Residency, int]] = []

    @rule(column=st.integers(0, 3), amount=amounts)
    def loads(self, column: int, amount: int) -> None:
        self.ledger.reserve_model(self.places[column], amount)

    @rule(column=st.integers(0, 3))
    def unloads(self, column: int) -> None:
        self.ledger.release_model(self.places[column])

    @rule(column=st.integers(0, 3), held=st.integers(0, 1200))
    def is_measured(self, column: int, held: int) -> None:
        self.ledger.set_measured(self.places[column], held)

    @rule(amount=st.integers(0, 1200))
    def strangers_use(self, amount: int) -> None:
        self.cells.external[0] = amount

    @rule(column=st.integers(0, 3), amount=amounts)
    def takes(self, column: int, amount: int) -> None:
        if self.ledger.reserve(self.places[column], amount):
            self.running.append((self.places[column], amount))

    @rule(column=st.integers(0, 3))
    def takes_all(self, column: int) -> None:
        if amount := self.ledger.reserve_all(self.places[column]):
            self.running.append((self.places[column], amount))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def gives(self, data: st.DataObject) -> None:
        self.ledger.release(*self.running.pop(data.draw(st.integers(0, len(self.running) - 1))))

    @invariant()
    def never_more_is_given_out_than_may_be(self) -> None:
        reserved = self.ledger.reserved(self.device)
        assert reserved <= BUDGET_BYTES
        assert reserved == sum(self.cells.base[column] for column in range(4)) + sum(
            amount for _, amount in self.running
        )

    def teardown(self) -> None:
        while self.running:
            self.ledger.release(*self.running.pop())
        assert self.ledger.reserved(self.device) == sum(self.cells.base[column] for column in range(4))


TestAlone = Alone.TestCase
TestAlone.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
