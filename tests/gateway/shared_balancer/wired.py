"""Workers and a balancer process without processes: real messages, encoded, on lines that deliver when told to."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from steelyard.control.memory.orphaned_reservations import OrphanedReservations
from steelyard.core.balancer import Balancer
from steelyard.core.decision import Cancel, Decision, Pending, Reject, Send, Wait
from steelyard.core.memory.ledger import MemoryLedger, Residency
from steelyard.core.memory.request_size import RequestSizeModel
from steelyard.core.options import PoolOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Replica
from steelyard.core.request import INFINITY, Request, RequestPhase
from steelyard.gateway.balancer_process.server import BalancerServer, WorkerLink
from steelyard.gateway.shared_balancer.client import BalancerClient
from steelyard.gateway.shared_balancer.messages import (
    BalancerMessage,
    Dispatch,
    Submit,
    WorkerMessage,
    decoder,
    encode_messages,
)
from steelyard.gateway.worker.device_memory import TrackedDeviceMemory
from steelyard.link.shared_ledger import SharedLedger

MODEL = "m"
DEVICE = 0  # its number
BALANCER_ROW = 1  # of the ledger
DECISION_GRACE_SECONDS = 0.25  # as in the dispatcher
PID = 1000  # of the first worker


class Line:
    """One direction of a connection."""

    def __init__(self, kind: Any) -> None:
        self._decoder = decoder(kind)
        self._sent: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, message: Any) -> None:
        self._sent.append(encode_messages([message]))

    def next(self) -> list[Any]:
        return self._decoder.decode(self._sent.popleft()[4:])

    def cut(self) -> None:
        self._sent.clear()


class WiredWorker:
    """What a dispatcher keeps of its requests."""

    def __init__(self, stage: Wired, index: int) -> None:
        self.stage = stage
        self.index = index
        self.client = BalancerClient(index, PID + index, Random(index))
        self.client.add_model(MODEL, options=stage.options)
        for id, place in stage.places(MemoryLedger()).items():
            self.client.add_replica(id, MODEL, place=place, now=stage.now)
        self.up, self.down = Line(WorkerMessage), Line(BalancerMessage)
        self.link: WorkerLink | None = None
        self.submitted: list[Request] = []  # some are over
        self.running: list[tuple[Request, Replica]] = []
        self.waiting: list[Request] = []  # told so
        self.answering: set[Request] = set()
        self.over: list[Request] = []
        self.reasons: dict[Request, str] = {}
        self.failed_over: list[str] = []
        self.client.on_fail_over = lambda replica, now: self.failed_over.append(replica.id)

    def submit(self, **fields: Any) -> Request:
        request = Request(MODEL, **fields)
        self.submitted.append(request)
        self.carry_out([self.client.submit(request, self.stage.now)])
        return request

    def carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            request = decision.request
            if isinstance(decision, Pending):
                continue
            if request in self.waiting:
                self.waiting.remove(request)
            if isinstance(decision, Send):
                assert request not in self.answering, "its client has the beginning of another answer"
                self.running.append((request, decision.replica))
                self.stage.on_send(self, request, decision.replica)
            elif isinstance(decision, Wait):
                self.waiting.append(request)
            elif isinstance(decision, Reject):
                self.over.append(request)
                self.reasons[request] = decision.reason.code
            else:
                assert isinstance(decision, Cancel)
                self.running.remove((request, decision.replica))

    def finish(self, request: Request, replica: Replica, outcome: Outcome = Outcome.OK) -> None:
        self.running.remove((request, replica))
        self.carry_out(self.client.finish(request, outcome, self.stage.now, replica=replica))
        self._note_end(request)

    def answer_begins(self, request: Request, replica: Replica) -> None:
        """As the gateway does it: only what may be hedged tells."""
        attempt = request.attempt
        if request not in self.answering and attempt is not None and attempt.hedge_entry is not None:
            self.carry_out(self.client.response_started(request, replica, self.stage.now))
        self.answering.add(request)

    def cancel(self, request: Request) -> None:
        self.carry_out(self.client.cancel(request, self.stage.now))
        if request in self.waiting:
            self.waiting.remove(request)
        self._note_end(request)

    def _note_end(self, request: Request) -> None:
        if request.phase.value == "done" and request not in self.over:
            self.over.append(request)

    def hear(self) -> None:
        self.carry_out(self.client.receive(self.down.next(), self.stage.now))

    def expire(self) -> None:
        now = self.stage.now
        self.carry_out(self.client.expire(now))
        for request in [request for request in self.submitted if request.deadline + DECISION_GRACE_SECONDS <= now]:
            self.carry_out(self.client.out_of_time(request, now))
        self.submitted = [request for request in self.submitted if request.phase is not RequestPhase.DONE]

    def forget(self, id: str) -> None:
        """The supervisor tells the balancer process first."""
        if id in self.client.pool(MODEL).replicas:
            self.client.remove_replica(id, MODEL, now=self.stage.now)

    def know_all(self) -> None:
        known = self.client.pool(MODEL).replicas
        for id, place in self.stage.places(MemoryLedger()).items():
            if id not in known:
                self.client.add_replica(id, MODEL, place=place, now=self.stage.now)
        if self.client.wake < INFINITY:
            self.expire()


class Wired:
    def __init__(
        self,
        workers: int = 2,
        ids: Sequence[str] = ("a", "b"),
        policy: str = "least_work",
        device_bytes: int = 0,
        **options: Any,
    ) -> None:
        """`device_bytes`: of one device that all replicas share, where a request takes as much as its feature says."""
        self.now = 100.0
        self.device_bytes = device_bytes
        self.ledger = SharedLedger.create(len(ids), rows=2, devices=1)
        self.orphans = OrphanedReservations(self.ledger)
        self._adopted: list[list[tuple[int, int, int]]] = []  # under way to the supervisor
        self.ids = list(ids)
        self.policy = policy
        self.options = PoolOptions(**options)
        self.on_send: Callable[[WiredWorker, Request, Replica], None] = lambda worker, request, replica: None
        self.server: BalancerServer | None = None
        self.said: list[str] = []
        self.lost: list[tuple[int, dict[str, int]]] = []
        self.arrived: list[tuple[int, int]] = []  # (worker, number) of requests, as the balancer process hears of them
        self.sent: list[tuple[int, int]] = []  # and as it sends them on
        self.workers = [WiredWorker(self, index) for index in range(workers)]
        self.start_balancer()
        self.settle()

    @property
    def balancer(self) -> Balancer:
        assert self.server is not None
        return self.server.balancer

    def pids(self, *workers: WiredWorker) -> frozenset[int]:
        return frozenset(PID + worker.index for worker in workers or self.workers)

    def start_balancer(self, recover: Iterable[int] = ()) -> None:
        ledger = MemoryLedger(SharedLedger(os.dup(self.ledger.fd), BALANCER_ROW))
        balancer = Balancer(Random(7), ledger)
        balancer.add_model(MODEL, self.policy, self.options, now=self.now)
        self.server = BalancerServer(balancer, lambda when, now: None, recover, self.said.append)
        self.server.on_requests_lost = lambda worker, requests: self.lost.append((worker, requests))
        self.server.on_adopted = self._adopted.append
        if self.device_bytes:
            self.server.memory = TrackedDeviceMemory(self.server, ledger, lambda message: None)
            balancer.track_memory(MODEL, RequestSizeModel(0.0, 1.0), 0)
        for id, place in self.places(ledger).items():
            balancer.add_replica(id, MODEL, context=Context(), place=place, now=self.now)
        for worker in self.workers:
            self.connect(worker)

    def places(self, ledger: MemoryLedger) -> dict[str, Residency | None]:
        if not self.device_bytes:
            return dict.fromkeys(self.ids)
        device = ledger.set_device("d", DEVICE, self.device_bytes, 0.0)
        return {id: ledger.add_residency(device, id, column) for column, id in enumerate(self.ids)}

    def connect(self, worker: WiredWorker) -> None:
        assert self.server is not None

        def send(message: Any) -> None:
            if isinstance(message, Dispatch):
                self.sent.append((worker.index, message.number))
            worker.down.send(message)

        worker.link = self.server.add_worker(send)
        worker.client.connect(worker.up.send, worker.up.send)

    def kill_balancer(self) -> None:
        """What it has sent still arrives; what workers say is lost."""
        self.server = None
        for worker in self.workers:
            while worker.down:
                worker.hear()
            worker.up.cut()
            worker.client.disconnect(self.now)
            worker.link = None
        self.tell_supervisor()
        devices = dict.fromkeys(range(len(self.ids)), DEVICE)
        self.orphans.worker_exited(BALANCER_ROW, devices, self.now, adoptable=True)

    def tell_supervisor(self) -> None:
        for adopted in self._adopted:
            self.orphans.adopted(adopted)
        self._adopted.clear()

    def kill_worker(self, worker: WiredWorker) -> None:
        """What it has said arrives first."""
        while self.server is not None and worker.up:
            self.deliver(worker)
        self.workers.remove(worker)
        if self.server is not None and worker.link is not None:
            self.server.remove_worker(worker.link, self.now)

    def deliver(self, worker: WiredWorker) -> None:
        """The next thing that this worker has said."""
        assert self.server is not None
        assert worker.link is not None
        (message,) = worker.up.next()
        if isinstance(message, Submit):
            self.arrived.append((worker.index, message.number))
        self.server.receive(worker.link, [message], self.now)

    def settle(self) -> None:
        """Everything arrives, and what time brings about happens."""
        while True:
            for worker in self.workers:
                while self.server is not None and worker.up:
                    self.deliver(worker)
                while worker.down:
                    worker.hear()
                if worker.client.wake <= self.now:
                    worker.expire()
            if self.server is not None:
                self.server.expire(self.now)
            self.tell_supervisor()
            self.orphans.tick(self.now)
            if not any(worker.up or worker.down for worker in self.workers):
                return

    def learn(self, requests: int) -> None:
        """How long one takes."""
        worker = self.workers[0]
        for _ in range(requests):
            worker.submit(features=(10.0,))
            self.settle()
            self.now += 0.1
            worker.finish(*worker.running[0])
            self.settle()

    def running(self) -> dict[str, int]:
        """Attempts that really run, by replica."""
        found = dict.fromkeys(self.ids, 0)
        for worker in self.workers:
            for _, replica in worker.running:
                found[replica.id] += 1
        return found

    def bytes_running(self) -> int:
        """That their requests really take of the device."""
        return sum(int(request.features[0]) for worker in self.workers for request, _ in worker.running)

    def loads(self) -> dict[str, int]:
        """What the balancer process counts."""
        return {id: replica.in_flight for id, replica in self.balancer.pool(MODEL).replicas.items()}


class Context:
    """A replica's, as far as the server looks at it."""

    model = MODEL
    probed = True
    column = 0
