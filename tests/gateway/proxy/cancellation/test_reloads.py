"""The configuration changes under way: what waits, runs and comes next."""

from collections.abc import Callable

import pytest

from steelyard.gateway.proxy.client_connection import IDLE_DRAIN_SECONDS

from ...reading import answer, read_answer, read_answers, request
from ...stage import Stage


def fleet(**models: str) -> str:
    lines = [f"  {name}: {{concurrency: 1, retry: {{max_attempts: 3}}, {rest}}}" for name, rest in models.items()]
    return "\n".join(["models:", *lines])


A, B, AB = (f"replicas: [{', '.join(f'{{url: http://{r}:1}}' for r in ids)}]" for ids in ("a", "b", "ab"))


def test_what_runs_on_a_removed_replica_goes_on(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A))
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe")
    stage.reload(fleet(m=B))
    replica.says(b"llo")
    assert read_answer(client.hears()).body == b"hello"
    assert replica.closed, "nobody uses it any more"
    client.says(request())
    assert stage.replica().place == "b:1"
    stage.replica().says(answer())
    stage.check_idle(counted=2)


def test_unused_connections_to_a_removed_replica_are_closed(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=AB))
    client = stage.client()
    client.says(request())
    replica = stage.replica()
    replica.says(answer())
    stage.reload(fleet(m=B if replica.place == "a:1" else A))
    assert replica.closed
    assert len(stage.proxy.connection_pools) == 1
    stage.check_idle(counted=1)


def test_what_waits_goes_to_a_new_replica_at_once(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A))
    first, second = stage.client(), stage.client()
    first.says(request("GET /1"))
    second.says(request("GET /2"))
    busy = stage.replica()
    stage.reload(fleet(m=AB))
    assert stage.dialling == ["b:1"]
    stage.accept().says(answer(b"2"))
    assert read_answer(second.hears()).body == b"2"
    busy.says(answer(b"1"))
    assert read_answer(first.hears()).body == b"1"
    stage.check_idle(counted=2)


def test_what_waits_outlives_the_removal_of_every_replica_but_new_ones(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A))
    first, second = stage.client(), stage.client()
    first.says(request("GET /1"))
    second.says(request("GET /2"))
    stage.replica()
    stage.reload(fleet(m=B))
    assert stage.dialling == ["b:1"]
    stage.accept().says(answer(b"2"))
    assert read_answer(second.hears()).body == b"2"
    stage.replica().says(answer(b"1"))
    stage.check_idle(counted=2)


def test_what_waits_for_a_removed_model_is_refused_and_what_runs_goes_on(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A, n=B))
    first, second = stage.client(), stage.client()
    first.says(request("GET /", "steelyard-model: m"))
    second.says(request("GET /", "steelyard-model: m") + request("GET /", "steelyard-model: n"))
    busy = stage.replica()
    stage.reload(fleet(n=B))
    response = read_answer(second.hears())
    assert (response.status, response["steelyard-reason"]) == (404, "unknown_model")
    assert stage.dialling == ["b:1"], "its next request is for a model that stays"
    stage.accept().says(answer(b"n"))
    busy.says(answer(b"m"))
    assert read_answer(first.hears()).body == b"m"
    assert list(stage.proxy.recorder.stats) == ["n"]
    stage.check_idle()


def test_what_fails_on_a_removed_model_is_not_tried_again(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=AB, n=B))
    client = stage.client()
    client.says(request("GET /", "steelyard-model: m"))
    replica = stage.replica()
    stage.reload(fleet(n=B))
    replica.says(answer(b"last words", status="500 Broken"))
    assert read_answer(client.hears()).status == 500
    stage.check_idle()


def test_a_model_that_comes_back_begins_anew(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A, n=B))
    client = stage.client()
    client.says(request("GET /", "steelyard-model: m"))
    old = stage.replica()
    stage.reload(fleet(n=B))
    stage.reload(fleet(m=A, n=B))
    other = stage.client()
    other.says(request("GET /", "steelyard-model: m"))
    new = stage.accept("a:1")
    new.says(answer(b"new"))
    assert read_answer(other.hears()).body == b"new"
    old.says(answer(b"old"))
    assert read_answer(client.hears()).body == b"old"
    stage.check_idle()


def test_a_request_whose_body_is_still_coming_meets_the_new_fleet(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A, n=B))
    kept, lost = stage.client(), stage.client()
    for client, model in ((kept, "n"), (lost, "m")):
        client.says(request("POST /", f"steelyard-model: {model}", "content-length: 5"), b"he")
    stage.reload(fleet(n=A, o=B))
    kept.says(b"llo")
    lost.says(b"llo")
    assert read_answer(lost.hears()).status == 404
    assert stage.replica().place == "a:1"
    stage.replica().says(answer(b"ok"))
    assert read_answer(kept.hears()).body == b"ok"
    stage.check_idle(counted=2)


def test_limits_and_timeouts_hold_for_connections_that_are_open(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A))
    client = stage.client()
    stage.reload("limits: {header_bytes: 100}\n" + fleet(m=A))
    client.says(request("GET /", "x: " + "a" * 200))
    assert read_answer(client.hears()).status == 431


@pytest.mark.parametrize(
    "change", ["policy: round_robin, ", "max_queue: 0, ", "queue_timeout: 1s, ", "wait_for_ready: true, "]
)
def test_other_options_lose_nobody(staged: Callable[..., Stage], change: str) -> None:
    stage = staged(fleet(m=A))
    clients = [stage.client() for _ in range(3)]
    for number, client in enumerate(clients):
        client.says(request(f"GET /{number}"))
    stage.replica()
    stage.reload(fleet(m=change + A))
    for number, client in enumerate(clients):
        stage.replica().says(answer(b"%d" % number))
        assert read_answer(client.hears()).body == b"%d" % number
    stage.check_idle(counted=3)


def test_reload_after_reload_while_requests_come_and_go(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=AB))
    client = stage.client()
    for number in range(60):
        stage.reload(fleet(m=(A, B, AB)[number % 3]))
        client.says(request())
        if number % 2:
            stage.reload(fleet(m=(B, AB, A)[number % 3]))
        stage.replica().says(answer())
    assert [message.status for message in read_answers(client.hears())] == [200] * 60
    stage.check_idle(counted=60)


# ---------------------------------------------------------------------- the end


def test_draining_ends_each_connection_with_the_answer_in_progress(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A))
    running, waiting, beginning = (stage.client() for _ in range(3))
    running.says(request())
    replica = stage.replica()
    waiting.says(request())
    beginning.says(b"GET / HTTP/1.1\r\n")
    stage.proxy.drain()
    late = stage.client()
    assert read_answer(late.hears())["steelyard-reason"] == "stopping"
    assert late.closed
    beginning.says(b"host: a\r\n\r\n")
    for client in (running, waiting, beginning):
        assert not client.closed
        replica = stage.replica()
        replica.says(answer(b"ok"))
        response = read_answer(client.hears())
        assert (response["connection"], response.body) == ("close", b"ok")
        assert client.closed
    assert not stage.proxy.clients
    stage.check_idle(counted=3)


def test_draining_lets_a_request_in_that_is_on_its_way(staged: Callable[..., Stage]) -> None:
    stage = staged(fleet(m=A))
    idle, quick = stage.client(), stage.client()
    stage.proxy.drain()
    quick.says(request())
    stage.replica()
    stage.pass_time(IDLE_DRAIN_SECONDS + 1)
    assert idle.closed
    assert idle.hears() == b""
    assert not quick.closed
    stage.replica().says(answer(b"ok"))
    assert read_answer(quick.hears())["connection"] == "close"
    assert quick.closed
    stage.check_idle(counted=1)


def test_an_answer_whose_head_is_out_is_the_last_all_the_same(stage: Stage) -> None:
    client = stage.client()
    client.says(request() + request())
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
    stage.proxy.drain()
    replica.says(b"k")
    assert read_answer(client.hears()).body == b"ok"
    assert client.closed
    stage.check_idle(counted=1)


def test_a_worker_that_is_relieved_tells_each_client_before_it_closes(staged: Callable[..., Stage]) -> None:
    """Issue 13, point 27: others take new connections; an idle one here ends with its next answer, not before."""
    stage = staged(fleet(m=A))
    idle, streams = stage.client(), stage.client()
    streams.says(request())
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
    stage.proxy.drain(sockets_shared=True)
    late = stage.client()  # its TLS handshake took a while
    stage.pass_time(IDLE_DRAIN_SECONDS + 1)
    assert not idle.closed
    stage.replica().says(b"k")
    assert read_answer(streams.hears()).all("connection") == []
    assert not streams.closed  # it was not told
    for client in (idle, streams, late):
        client.says(request())
        stage.replica().says(answer(b"ok"))
        assert read_answer(client.hears())["connection"] == "close"
        assert client.closed
    assert not stage.proxy.clients
