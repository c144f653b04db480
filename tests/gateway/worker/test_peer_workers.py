"""Workers that share a board: together they balance as one would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from steelyard.config import parse_config
from steelyard.core.policies.base import Policy
from steelyard.core.replica import Replica
from steelyard.core.request import Request
from steelyard.gateway.worker.fleet import WorkerFleet
from steelyard.gateway.worker.peer_workers import REFRESH_SECONDS, PeerWorkers
from steelyard.link.load_board import LoadBoard

from ..loop import Wire
from ..reading import answer, read_answer, request
from ..stage import Stage

IDS = "abcd"


def config(ids: str = IDS, more: str = "policy: least_connections", urls: str = "") -> str:
    replicas = ", ".join(f"{{id: {id}, url: 'http://{url}:1'}}" for id, url in zip(ids, urls or ids, strict=True))
    return f"models: {{m: {{{more}, replicas: [{replicas}]}}}}"


class Worker(Stage):
    """A stage that is one worker of several."""

    def __init__(self, text: str, board: LoadBoard, index: int) -> None:
        super().__init__("models: {none: {replicas: []}}", seed=index)
        self.board = board
        self.proxy.dispatcher.peers = PeerWorkers(self.proxy, board, index)
        self.fleet = WorkerFleet(self.proxy)
        self.fleet.models = dict(self.config.models)
        self.apply(text)

    def apply(self, text: str, columns: dict[str, int] | None = None) -> None:
        self.remember()
        self.config = parse_config(text)
        table = {"m": columns or {id: IDS.index(id) for id in IDS}}
        self.fleet.apply(self.config, table, self.loop.now)
        self.probe()
        self.loop.settle()

    def in_flight(self) -> dict[str, int]:
        return {replica.id: replica.in_flight for replica in self.balancer.pool("m").replicas.values()}


@pytest.fixture
def board() -> LoadBoard:
    return LoadBoard.create(workers=2, columns=8)


@pytest.fixture
def workers(board: LoadBoard) -> Iterator[list[Worker]]:
    made = [Worker(config(), board, index) for index in (0, 1)]
    yield made
    for worker in made:
        worker.close()


def begin(worker: Worker) -> tuple[Wire, Wire]:
    """A request that runs: the client's end and the replica's."""
    client = worker.client()
    before = set(worker.proxy.active)
    client.says(request())
    while worker.dialling:
        worker.accept()
    (connection,) = set(worker.proxy.active) - before
    return client, next(wire for wire in worker.loop.wires if wire.transport.protocol is connection)


def test_the_board_says_what_each_has(workers: list[Worker], board: LoadBoard) -> None:
    running = [begin(workers[0]) for _ in range(5)]
    counts = [board.count(0, column) for column in range(4)]
    assert sum(counts) == 5
    assert counts == list(workers[0].in_flight().values())
    for _, wire in running:
        wire.says(answer())
    assert [board.count(0, column) for column in range(4)] == [0] * 4
    client, _ = begin(workers[0])
    client.breaks()
    assert [board.count(0, column) for column in range(4)] == [0] * 4


@pytest.mark.parametrize("seed", range(5))
def test_least_connections_of_two_are_those_of_one(workers: list[Worker], seed: int) -> None:
    """With equal replicas one balancer keeps every two within 1 when requests come, whoever they come to."""
    random = Random(seed)
    running: list[tuple[Worker, Wire]] = []
    for _ in range(300):
        if len(running) < 4 or random.random() < 0.5:
            worker = random.choice(workers)
            before = total(workers)
            running.append((worker, begin(worker)[1]))
            after = total(workers)
            (chosen,) = [id for id in IDS if after[id] != before[id]]
            assert before[chosen] == min(before.values()), "one balancer would have sent it elsewhere"
        else:
            worker, wire = running.pop(random.randrange(len(running)))
            wire.says(answer())
    for _, wire in running:
        wire.says(answer())
    for worker in workers:
        worker.check_idle()


def total(workers: list[Worker]) -> dict[str, int]:
    counts = [worker.in_flight() for worker in workers]
    return {id: sum(count[id] for count in counts) for id in IDS}


def test_a_slot_freed_by_one_is_used_by_the_other(workers: list[Worker]) -> None:
    for worker in workers:
        worker.apply(config("a", "concurrency: 1"))
    _, wire = begin(workers[0])
    waiting = workers[1].client()
    waiting.says(request())
    assert workers[1].dialling == []
    wire.says(answer())
    workers[1].pass_time(0.01)
    workers[1].replica().says(answer(b"mine"))
    assert read_answer(waiting.hears()).body == b"mine"
    workers[1].check_idle(counted=1)


def test_a_worker_that_died_holds_nothing_up(workers: list[Worker], board: LoadBoard) -> None:
    for worker in workers:
        worker.apply(config("a", "concurrency: 1"))
    begin(workers[0])
    waiting = workers[1].client()
    waiting.says(request())
    board.clear(0)
    workers[1].pass_time(0.01)
    workers[1].replica().says(answer(b"mine"))
    assert read_answer(waiting.hears()).body == b"mine"


def test_what_nobody_changes_is_not_forgotten(workers: list[Worker]) -> None:
    """The balancer drops news that nobody confirms; a long request elsewhere is still there after a minute."""
    for worker in workers:
        worker.apply(config("ab"))
    _, wire = begin(workers[0])
    known = {f"{replica.id}:1": replica for replica in workers[1].balancer.pool("m").replicas.values()}
    for _ in range(60):
        workers[1].pass_time(REFRESH_SECONDS)
        assert known[wire.place].other_load == 1
    assert begin(workers[1])[1].place != wire.place


def test_a_replica_with_another_url_begins_with_nothing(workers: list[Worker], board: LoadBoard) -> None:
    worker = workers[0]
    worker.apply(config("a"))
    _, old = begin(worker)
    worker.apply(config("a", urls="b"))
    assert board.count(0, 0) == 0
    _, new = begin(worker)
    assert new.place == "b:1"
    old.says(answer())
    assert board.count(0, 0) == 1, "the old one's end is not the new one's"
    new.says(answer())
    assert board.count(0, 0) == 0
    worker.check_idle()


def test_a_column_that_went_to_another_replica_is_left_alone(workers: list[Worker], board: LoadBoard) -> None:
    worker = workers[0]
    worker.apply(config("a"), {"a": 0})
    _, old = begin(worker)
    worker.apply(config("b"), {"b": 0})
    _, new = begin(worker)
    old.says(answer())
    assert board.count(0, 0) == 1
    new.says(answer())
    assert board.count(0, 0) == 0


def test_a_removed_replica_is_told_to_nobody(workers: list[Worker]) -> None:
    for worker in workers:
        worker.apply(config("ab"))
    _, wire = begin(workers[0])
    for worker in workers:
        worker.apply(config("a" if wire.place == "b:1" else "b"))
    begin(workers[1])
    workers[1].pass_time(5)
    wire.says(answer())
    workers[0].check_idle()


def test_replicas_without_a_column_are_served_too(workers: list[Worker], board: LoadBoard) -> None:
    worker = workers[0]
    worker.apply(config("ab"), {"a": 0})
    for _ in range(4):
        _, wire = begin(worker)
        wire.says(answer())
    assert [board.count(0, column) for column in range(8)] == [0] * 8
    worker.check_idle(counted=4)


class Patient(Policy):
    """Waits for something better as long as it is told to."""

    waits = True

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        return candidates[0]

    def patience(self, request: Request, replica: Replica, ahead: float, now: float) -> float:
        return 1.0 if self.waits and replica.id == "b" else 0.0


def test_what_is_decided_when_a_slot_is_left_to_another_worker_is_done(
    workers: list[Worker], board: LoadBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = workers[0]
    worker.apply(config("ab", f"policy: '{__name__}:Patient', concurrency: 1"))
    _, wire = begin(worker)
    assert wire.place == "a:1"
    waiting = worker.client()
    waiting.says(request())
    assert worker.dialling == []
    board.put_queue(1, 0, 50)
    monkeypatch.setattr(Patient, "waits", False)
    wire.says(answer())
    worker.replica().says(answer(b"mine"))
    assert read_answer(waiting.hears()).body == b"mine"
    worker.check_idle(counted=2)
