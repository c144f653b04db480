"""For any history, of several workers over one ledger: never more is given out than the budget, and at rest what is
reserved is what the resident models hold."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Reject, Send
from steelyard.core.memory.ledger import MemoryLedger, Residency
from steelyard.core.memory.request_size import RequestSizeModel
from steelyard.core.options import PoolOptions, RetryOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Event, State
from steelyard.core.request import Request, RequestPhase
from steelyard.link.shared_ledger import SharedLedger

MODELS = ("a", "b", "c")
DEVICES = {"big": (1000, 0.1), "small": (300, 0.0)}
FOOTPRINTS = {"a": 50, "b": 100, "c": 250}
WORKERS = 2


class WatchedLedger(MemoryLedger):
    """Knows what it was told to release later."""

    def __init__(self, cells: SharedLedger) -> None:
        super().__init__(cells)
        self.later: list[tuple[float, int]] = []

    def release_at(self, place: Residency, amount: int, until: float) -> None:
        self.later.append((until, amount))
        super().release_at(place, amount, until)

    def expire(self, now: float) -> None:
        self.later = [(until, amount) for until, amount in self.later if until > now]
        super().expire(now)

    def lingering_bytes(self) -> int:
        return sum(amount for _, amount in self.later)


class Worker:
    """A balancer with its own row of the shared ledger."""

    def __init__(self, fd: int, row: int, concurrency: float) -> None:
        self.row = row
        self.shared_ledger = SharedLedger(fd, row)
        self.ledger = WatchedLedger(self.shared_ledger)
        self.balancer = Balancer(Random(row), self.ledger)
        self.requests: list[Request] = []
        settle(self.ledger, concurrency)
        retry = RetryOptions(max_attempts=2, initial_tokens=50.0)
        for number, model in enumerate(MODELS):
            sizes = RequestSizeModel(10.0, 1.0) if model != "c" else RequestSizeModel()
            self.balancer.add_model(model, "least_work", PoolOptions(wait_for_ready=True, retry=retry), sizes=sizes)
            self.balancer.pool(model).memory.load_state(FOOTPRINTS[model], sizes.state(), False)
            for place in places(self.ledger, number):
                id = place.device.name
                self.balancer.add_replica(id, model, place=place, state=State.UNLOADED, now=0.0)


def settle(ledger: MemoryLedger, concurrency: float) -> None:
    for index, (name, (capacity, headroom)) in enumerate(DEVICES.items()):
        device = ledger.set_device(name, index, capacity, headroom, concurrency)
        for number in range(len(MODELS)):
            # `a` and `b` share a server, `c` has its own
            server = f"{name}/{'ab' if number < 2 else 'c'}"
            ledger.add_residency(device, server, 2 * number + index, permanent=number == 0)


def places(ledger: MemoryLedger, number: int):
    columns = {2 * number, 2 * number + 1}
    return [
        place
        for device in ledger.devices.values()
        for server in device.servers.values()
        for place in server.residencies
        if place.column in columns
    ]


class LedgerMachine(RuleBasedStateMachine):
    requests = Bundle("requests")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.concurrency = float("inf")
        self.shared_ledger = SharedLedger.create(16, rows=8, devices=2)
        self.ledger = MemoryLedger(self.shared_ledger)
        settle(self.ledger, self.concurrency)
        self.orphaned: list[tuple[int, int, int, int, float]] = []
        self.rows = 0
        self.workers: list[Worker] = []
        for _ in range(WORKERS):
            self.workers.append(self.hire())

    def teardown(self) -> None:
        for worker in self.workers:
            for request in worker.requests:
                if request.phase in (RequestPhase.RUNNING, RequestPhase.WAITING):
                    self.carry_out(worker, worker.balancer.cancel(request, self.now))
            worker.ledger.expire(self.now + 1000.0)
        for reservation in self.orphaned:
            self.shared_ledger.release(*reservation[:4])
        for device in self.ledger.devices.values():
            resident = sum(self.shared_ledger.base[p.column] for s in device.servers.values() for p in s.residencies)
            assert self.ledger.reserved(device) == resident
            assert self.shared_ledger.count(device.index) == 0
        self.shared_ledger.close()

    def hire(self) -> Worker:
        self.rows = self.rows % 6 + 1
        while any(
            worker.row == self.rows for worker in self.workers
        ):  # a row of a process that lives is not used again
            self.rows = self.rows % 6 + 1
        worker = Worker(self.shared_ledger.fd, self.rows, self.concurrency)
        for number, model in enumerate(MODELS):
            for place in places(self.ledger, number):
                if self.shared_ledger.base[place.column]:
                    self.tell(worker, model, place, (Event.LOAD, Event.LOADED))
        return worker

    def carry_out(self, worker: Worker, decisions) -> None:
        for decision in decisions:
            if isinstance(decision, Reject):
                assert decision.request.phase is RequestPhase.DONE

    def tell(self, worker: Worker, model: str, place, events) -> None:
        for event in events:
            self.carry_out(worker, worker.balancer.report(place.device.name, event, model, now=self.now))

    # ------------------------------------------------------------------ models

    @rule(number=st.integers(0, 2), which=st.integers(0, 1))
    def load(self, number, which):
        place = places(self.ledger, number)[which]
        if not self.shared_ledger.base[place.column] and self.ledger.reserve_model(place, FOOTPRINTS[MODELS[number]]):
            for worker in self.workers:
                self.tell(worker, MODELS[number], place, (Event.LOAD, Event.LOADED))

    @rule(number=st.integers(0, 2), which=st.integers(0, 1))
    def unload(self, number, which):
        """Nobody unloads what has requests running: the placer drains first."""
        place = places(self.ledger, number)[which]
        for worker in self.workers:
            self.tell(worker, MODELS[number], place, (Event.UNLOAD,))
        if not self.shared_ledger.running(place.column):
            self.ledger.release_model(place)
        elif self.shared_ledger.base[place.column]:
            for worker in self.workers:
                self.tell(worker, MODELS[number], place, (Event.LOAD, Event.LOADED))

    @rule(which=st.integers(0, 1), share=st.floats(0, 1))
    def measured(self, which, share):
        device = list(self.ledger.devices.values())[which]
        for server in device.servers.values():
            self.ledger.set_measured(server.residencies[0], int(share * device.capacity))

    @rule(which=st.integers(0, 1), share=st.floats(0, 0.5))
    def strangers(self, which, share):
        device = list(self.ledger.devices.values())[which]
        self.shared_ledger.external[device.index] = int(share * device.capacity)

    # ------------------------------------------------------------------ requests

    @rule(target=requests, who=st.integers(0, WORKERS - 1), model=st.sampled_from(MODELS), size=st.floats(0, 1200))
    def submit(self, who, model, size):
        worker = self.workers[who]
        request = Request(model, (size,), deadline=self.now + 50.0 if size < 500 else float("inf"))
        decision = worker.balancer.submit(request, self.now)
        if isinstance(decision, Reject):
            return multiple()
        worker.requests.append(request)
        return (worker, request)

    @rule(one=consumes(requests), outcome=st.sampled_from(Outcome))
    def finish(self, one, outcome):
        worker, request = one
        if worker in self.workers and request.phase is RequestPhase.RUNNING:
            if outcome is Outcome.OUT_OF_MEMORY:
                worker.balancer.report_out_of_memory(request, request.attempt.replica, self.now)
            decisions = worker.balancer.finish(request, outcome, self.now, replica=request.attempt.replica)
            self.carry_out(worker, decisions)
            for decision in decisions:
                if isinstance(decision, Send):
                    assert decision.request.phase is RequestPhase.RUNNING

    @rule(one=consumes(requests))
    def leave(self, one):
        worker, request = one
        if worker in self.workers and request.phase in (RequestPhase.RUNNING, RequestPhase.WAITING):
            self.carry_out(worker, worker.balancer.cancel(request, self.now))

    @rule(seconds=st.floats(0.001, 5))
    def time_passes(self, seconds):
        self.now += seconds
        for worker in self.workers:
            self.carry_out(worker, worker.balancer.expire(self.now))

    # ------------------------------------------------------------------ workers

    @rule(who=st.integers(0, WORKERS - 1))
    def killed(self, who):
        """What it had counts on, and another takes its place."""
        device_of = {
            p.column: d.index for d in self.ledger.devices.values() for s in d.servers.values() for p in s.residencies
        }
        before = {device.name: self.ledger.reserved(device) for device in self.ledger.devices.values()}
        self.orphaned += self.shared_ledger.retire(self.workers[who].row, device_of)
        assert before == {device.name: self.ledger.reserved(device) for device in self.ledger.devices.values()}
        self.workers[who] = self.hire()

    @precondition(lambda self: self.orphaned)
    @rule()
    def what_the_dead_had_is_over(self):
        reservation = self.orphaned.pop(0)
        self.shared_ledger.release(*reservation[:4])

    @invariant()
    def never_more_than_the_budget(self):
        for device in self.ledger.devices.values():
            assert 0 <= self.ledger.reserved(device) <= device.budget

    @invariant()
    def what_runs_is_what_is_reserved(self):
        for worker in self.workers:
            running = [r for r in worker.requests if r.phase is RequestPhase.RUNNING]
            held = sum(
                attempt.reservation[1] for r in running for attempt in (r.attempt, r.hedge) if attempt is not None
            )
            held += worker.ledger.lingering_bytes()
            assert held == sum(worker.shared_ledger.running_bytes[worker.row].tolist())


TestLedger = pytest.mark.interpreted("derives a class from a compiled one")(LedgerMachine.TestCase)
TestLedger.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
