"""What one connection gets done in one turn of the loop is bounded; then others come first (fair_turns.py)."""

from __future__ import annotations

from collections.abc import Callable

from steelyard.gateway.proxy.fair_turns import MAX_CHUNKS_PER_TURN, MAX_REQUESTS_PER_TURN

from ...loop import Wire
from ...reading import answer, chunked, read_answer, read_answers, read_request, request
from ...stage import Stage

OPENAI = "models: {m: {dialect: openai, replicas: [{url: 'http://a:1'}]}}"


def held(stage: Stage, client: Wire, data: bytes) -> None:
    """Say it, and look before the turn is over."""
    stage.loop.held = True
    client.says(data)
    stage.loop.held = False


def test_so_many_requests_of_a_connection_are_begun_in_one_turn(staged: Callable[..., Stage]) -> None:
    stage = staged(OPENAI)
    client = stage.client()
    held(stage, client, request("GET /v1/models") * 100)
    assert stage.counted() == MAX_REQUESTS_PER_TURN
    assert client.transport.paused
    assert [response.status for response in read_answers(client.hears())] == [200] * 100
    assert not client.transport.paused
    stage.check_idle(counted=100)


def test_connections_take_turns(staged: Callable[..., Stage]) -> None:
    stage = staged(OPENAI)
    clients = [stage.client() for _ in range(3)]
    stage.loop.held = True
    for client in clients:
        client.says(request("GET /v1/models") * 100)
    for turn in range(1, 10):
        served = [bytes(client.transport.heard).count(b"HTTP/1.1 200") for client in clients]
        assert max(served) - min(served) <= MAX_REQUESTS_PER_TURN, (turn, served)
        stage.loop.stop()
        stage.loop.run_forever()  # one turn
    stage.loop.held = False
    assert [len(read_answers(client.hears())) for client in clients] == [100] * 3
    stage.check_idle(counted=300)


def test_so_many_chunks_are_read_in_one_turn(stage: Stage) -> None:
    client = stage.client()
    held(stage, client, request("POST /", "transfer-encoding: chunked") + chunked(*[b"x"] * 1000) + request("GET /2"))
    assert stage.proxy.held == MAX_CHUNKS_PER_TURN
    assert client.transport.paused
    replica = stage.replica()
    assert read_request(replica.hears()).body == b"x" * 1000
    replica.says(answer(b"1"))
    assert read_request(stage.replica().hears()).first.startswith("GET /2 ")
    stage.replica().says(answer(b"2"))
    assert [response.body for response in read_answers(client.hears())] == [b"1", b"2"]
    stage.check_idle(counted=2)


def test_a_body_in_small_records_of_tls_yields_after_each_read(stage: Stage) -> None:
    client = stage.client(tls=True)
    held(stage, client, request("POST /", "content-length: 3"))
    assert client.transport.paused
    client.says(b"a")
    held(stage, client, b"b")
    assert client.transport.paused
    client.says(b"c")
    replica = stage.replica()
    assert read_request(replica.hears()).body == b"abc"
    replica.says(answer(b"1"))
    assert read_answer(client.hears()).body == b"1"
    stage.check_idle(counted=1)


def test_who_waits_for_a_turn_is_halted_for_a_slow_replica_too(staged: Callable[..., Stage]) -> None:
    stage = staged(
        "{limits: {connection_buffer_bytes: 1000, replay_bytes: 1000}, models: {m: {replicas: [{url: 'http://a:1'}]}}}"
    )
    client = stage.client()
    client.says(request("POST /", "transfer-encoding: chunked") + chunked(b"y" * 2000)[:-5])
    replica = stage.replica()
    replica.hears()
    replica.stops_reading()
    client.says(chunked(*[b"x" * 100] * 1000))
    assert client.transport.paused
    assert replica.transport.waiting_to_be_read < 100 * MAX_CHUNKS_PER_TURN * 2, (
        "it read on though the replica takes nothing"
    )
    replica.reads_on()
    assert not client.transport.paused
    assert replica.hears().count(b"x" * 100) == 1000
    replica.says(answer(b"thanks"))
    assert read_answer(client.hears()).body == b"thanks"
    stage.check_idle(counted=1)


def test_who_leaves_while_it_waits_for_a_turn_leaves_nothing(staged: Callable[..., Stage]) -> None:
    stage = staged(OPENAI)
    client = stage.client()
    stage.loop.held = True
    client.says(request("GET /v1/models") * 100)
    client.breaks()
    stage.loop.held = False
    stage.loop.settle()
    stage.check_idle(counted=stage.counted())
    assert stage.counted() < 100
    assert not stage.proxy.turns.waiting


def test_a_head_that_is_not_all_there_after_a_turn_has_its_time(staged: Callable[..., Stage]) -> None:
    stage = staged(OPENAI)
    client = stage.client()
    client.says(request("GET /v1/models") * 20 + b"GET /v1/mod")
    assert len(read_answers(client.hears())) == 20
    stage.pass_time(11)
    assert read_answer(client.hears()).status == 408
    assert client.transport.eof_heard


def test_who_was_served_in_several_turns_is_idle_afterwards(staged: Callable[..., Stage]) -> None:
    stage = staged(OPENAI)
    client = stage.client()
    client.says(request("GET /v1/models") * 20)
    client.hears()
    stage.pass_time(80)
    assert client.closed
