"""Decisions as clients and replicas see them: which model, which replica, when, and why not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import (
    Connection,
    Response,
    Serving,
    StubReplica,
    Truncated,
    config,
    model,
    new_id,
    nothing_left,
    request,
    scripts,
    seen_by,
    slots_free,
    wait_until,
)

FIRST_CLIENT_REQUESTS, SECOND_CLIENT_REQUESTS = 10, 3  # requests of one client in line, and of another that came later
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def stubs() -> Iterator[list[StubReplica]]:
    with StubReplica("a") as a, StubReplica("b") as b, StubReplica("c") as c:
        yield [a, b, c]


@pytest.fixture(scope="module")
def gateway(stubs: list[StubReplica]) -> Iterator[Serving]:
    a, b, c = stubs
    models = {
        "small": model(a),
        "large": model(b, paths=["/large", "/also/large"]),
        "one": model(c, concurrency=1, max_queue=2, queue_timeout="20s"),
        "hasty": model(c, concurrency=1, queue_timeout="100ms"),
        "sticky": model(*stubs, policy="consistent_hash"),
        "shared": model(a, concurrency=1, max_queue=4),
        "crowded": model(b, concurrency=1, max_queue=FIRST_CLIENT_REQUESTS + SECOND_CLIENT_REQUESTS),
        "empty": {"replicas": []},
        "unhurried": model(c, timeout="300ms"),
    }
    with Serving(config(models, tenant_header="x-tenant", trusted_proxies=["127.0.0.1"])) as serving:
        yield serving


def chat(name: str, **rest: Any) -> bytes:
    return json.dumps({"model": name, "messages": [{"role": "user", "content": "hi"}], **rest}).encode()


def refused(response: Response, status: int, reason: str, retry: bool = True) -> None:
    assert response.status == status, response
    assert response.headers["steelyard-reason"] == reason
    if retry:
        assert int(response.headers["retry-after"]) >= 0  # RFC 9110 10.2.3: whole seconds
        assert response.headers["retry-after"].isdigit()


class Held:
    """Requests of the model `one` or its like, kept in order: the first runs, the others wait."""

    def __init__(self, gateway: Serving, stub: StubReplica, name: str) -> None:
        self.gateway, self.stub, self.name, self.gate = gateway, stub, name, new_id("held")
        self.connections: list[Connection] = []
        self.ids: list[str] = []

    def add(self, source: str = "", **headers: str) -> str:
        id, connection = new_id("held"), self.gateway.connect(source=source)
        given = {"steelyard-model": self.name} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.send(request("POST", id=id, headers=given, script=scripts.held(self.gate)))
        self.connections.append(connection)
        self.ids.append(id)
        return id

    def first(self, **headers: str) -> str:
        id = self.add(**headers)
        self.stub.wait("waiting", id=id)
        return id

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.stub.open(self.gate)
        for connection in self.connections:
            connection.close()
        slots_free(self.gateway, self.stub, headers={"steelyard-model": self.name})


class TestWhichModel:
    def test_by_header(self, gateway: Serving) -> None:
        assert gateway.ask(headers={"steelyard-model": "small"}).headers["steelyard-replica"] == "a"
        assert gateway.ask(headers={"steelyard-model": "large"}).headers["steelyard-replica"] == "b"

    @pytest.mark.parametrize("path", ["/large", "/large/predict?x=1", "/also/large/deep/er"])
    def test_by_path(self, gateway: Serving, path: str) -> None:
        assert gateway.ask("POST", path).headers["steelyard-replica"] == "b"

    def test_a_path_is_matched_by_whole_steps(self, gateway: Serving) -> None:
        refused(gateway.ask("POST", "/largest"), 404, "unknown_model", retry=False)

    @pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
    def test_by_body(self, gateway: Serving, path: str) -> None:
        headers = {"content-type": "application/json"}
        assert gateway.ask("POST", path, headers=headers, body=chat("small")).headers["steelyard-replica"] == "a"
        assert gateway.ask("POST", path, headers=headers, body=chat("large")).headers["steelyard-replica"] == "b"

    def test_by_body_in_chunks(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        id, body = new_id(), chat("large", pad="x" * 5000)
        response = gateway.ask("POST", CHAT, id=id, chunks=[body[:7], body[7:100], body[100:]])
        assert response.headers["steelyard-replica"] == "b"
        assert stubs[1].wait("body", id=id)["length"] == len(body)

    def test_by_body_with_expectation(self, gateway: Serving) -> None:
        whole = request("POST", CHAT, body=chat("small"), headers={"expect": "100-continue"})
        head, _, body = whole.partition(b"\r\n\r\n")
        with gateway.connect() as connection:
            connection.send(head + b"\r\n\r\n")
            assert connection.interim() == 100
            connection.send(body)
            assert connection.response().headers["steelyard-replica"] == "a"

    def test_by_open_inference_path(self, gateway: Serving) -> None:
        body = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}).encode()
        for target in ("/v2/models/large/infer", "/v2/models/large/versions/1/infer"):
            response = gateway.ask("POST", target, body=body)
            assert (response.status, response.headers["steelyard-replica"]) == (200, "b")

    def test_a_body_reaches_the_replica_as_it_was(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        id, body = new_id(), b'  {"model" :\t"small" ,"z":1.0e0, "u":"\\u00e9"}\n'
        assert gateway.ask("POST", CHAT, id=id, body=body).status == 200
        assert stubs[0].wait("body", id=id)["length"] == len(body)

    def test_a_body_too_large_to_be_kept(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        id, body = new_id(), chat("small", pad="x" * (3 << 20))
        response = gateway.ask("POST", CHAT, id=id, headers={"steelyard-model": "small"}, body=body)
        assert response.status == 200
        assert stubs[0].wait("body", id=id)["length"] == len(body)

    def test_an_unknown_model_of_openai(self, gateway: Serving) -> None:
        response = gateway.ask("POST", CHAT, body=chat("nope"))
        refused(response, 404, "unknown_model", retry=False)
        error = json.loads(response.body)["error"]
        assert {"message", "type", "code", "param"} <= set(error)
        assert error["code"] == "model_not_found"

    def test_an_unknown_model_of_open_inference(self, gateway: Serving) -> None:
        response = gateway.ask("POST", "/v2/models/nope/infer", body=b"{}")
        refused(response, 404, "unknown_model", retry=False)
        assert isinstance(json.loads(response.body)["error"], str)

    @pytest.mark.parametrize("target", ["/elsewhere", "/"])
    def test_an_unknown_model_of_plain_http(self, gateway: Serving, target: str) -> None:
        refused(gateway.ask("POST", target), 404, "unknown_model", retry=False)
        refused(gateway.ask("POST", target, headers={"steelyard-model": "nope"}), 404, "unknown_model", retry=False)

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 5}', b'{"model": ["small"]}', b"\xff\xfe"])
    def test_nonsense_in_a_body_is_no_crash(self, gateway: Serving, body: bytes) -> None:
        with gateway.connect() as connection:
            response = connection.ask("POST", CHAT, body=body)
            assert 400 <= response.status < 500
            assert connection.ask("POST", CHAT, body=chat("small")).status == 200


class TestLocalAnswers:
    def test_the_models(self, gateway: Serving) -> None:
        response = gateway.ask("GET", "/v1/models")
        listed = json.loads(response.body)
        assert (response.status, listed["object"]) == (200, "list")
        assert {"small", "large", "one"} <= {entry["id"] for entry in listed["data"]}
        assert all(entry["object"] == "model" for entry in listed["data"])

    @pytest.mark.parametrize("target", ["/v2/health/live", "/v2/health/ready", "/v2/models/small/ready"])
    def test_health(self, gateway: Serving, target: str) -> None:
        assert gateway.ask("GET", target).status == 200

    def test_a_model_that_is_not_there_is_not_ready(self, gateway: Serving) -> None:
        assert gateway.ask("GET", "/v2/models/nope/ready").status in (400, 404)

    def test_a_model_without_replicas_is_not_ready(self, gateway: Serving) -> None:
        assert gateway.ask("GET", "/v2/models/empty/ready").status in (400, 503)

    def test_to_head_without_a_body(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            assert connection.ask("HEAD", "/v1/models").status == 200
            assert connection.ask("GET", "/v1/models").body

    def test_they_keep_the_connection_and_pipeline(self, gateway: Serving) -> None:
        slow = request("POST", headers={"steelyard-model": "small"}, script=scripts.slow(0.1))
        with gateway.connect() as connection:
            connection.send(slow + request("GET", "/v1/models") + request("GET", "/v2/health/live"))
            assert b"replica" in connection.response().body
            assert b"list" in connection.response().body
            assert connection.response().status == 200


class TestRefusals:
    def test_a_full_line(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        with Held(gateway, stubs[2], "one") as held:
            held.first()
            waiting = [held.add(), held.add()]
            response = gateway.ask(headers={"steelyard-model": "one"})
            while response.status == 200:  # the two before it may still be on their way
                response = gateway.ask(headers={"steelyard-model": "one"})
            refused(response, 503, "queue_full")
            assert all(not stubs[2].of("request", id=id) for id in waiting)

    def test_in_the_words_of_openai(self, gateway: Serving) -> None:
        response = gateway.ask("POST", CHAT, body=chat("empty"))
        refused(response, 503, "no_replica")
        error = json.loads(response.body)["error"]
        assert error["code"] == "no_replica"
        assert response.headers["content-type"].startswith("application/json")

    def test_in_the_words_of_open_inference(self, gateway: Serving) -> None:
        response = gateway.ask("POST", "/v2/models/empty/infer", body=b"{}")
        refused(response, 503, "no_replica")
        assert json.loads(response.body)["error"]

    def test_waiting_too_long(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        with Held(gateway, stubs[2], "hasty") as held:
            held.first()
            refused(gateway.ask(headers={"steelyard-model": "hasty"}), 503, "queue_timeout")

    def test_a_tenant_with_its_share(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        with Held(gateway, stubs[0], "shared") as held:
            held.first()
            for tenant in ("x", "y", "x", "y"):
                held.add(x_tenant=tenant)
            response = gateway.ask(headers={"steelyard-model": "shared", "x-tenant": "x"})
            while response.status == 200:
                response = gateway.ask(headers={"steelyard-model": "shared", "x-tenant": "x"})
            refused(response, 429, "tenant_share")

    def test_the_connection_stays_usable(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            refused(connection.ask(headers={"steelyard-model": "empty"}, body=b"x" * 1000), 503, "no_replica")
            refused(connection.ask(headers={"steelyard-model": "empty"}, chunks=[b"x", b"y"]), 503, "no_replica")
            assert connection.ask(headers={"steelyard-model": "small"}).status == 200

    def test_a_refusal_to_head_has_no_body(self, gateway: Serving) -> None:
        with gateway.connect() as connection:
            assert connection.ask("HEAD", headers={"steelyard-model": "empty"}).status == 503
            assert connection.ask("GET", headers={"steelyard-model": "small"}).status == 200


class TestDeadlines:
    @pytest.mark.parametrize(
        "headers",
        [
            {"steelyard-timeout-ms": "300"},
            {"grpc-timeout": "300m"},
            {"grpc-timeout": "300000u"},
            {"x-envoy-expected-rq-timeout-ms": "300"},
        ],
        ids=str,
    )
    def test_a_replica_that_is_too_slow(
        self, gateway: Serving, stubs: list[StubReplica], headers: dict[str, str]
    ) -> None:
        wait_until(lambda: too_late(gateway, stubs[0], steelyard_model="small", **headers), "it never gets there")

    def test_the_model_s_own(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        wait_until(lambda: too_late(gateway, stubs[2], steelyard_model="unhurried"), "it never gets there")

    def test_a_client_may_allow_more_than_the_model(self, gateway: Serving) -> None:
        headers = {"steelyard-model": "unhurried", "steelyard-timeout-ms": "20000"}
        assert gateway.ask(headers=headers, script=scripts.slow(0.5)).status == 200

    def test_while_waiting(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        id = new_id()
        with Held(gateway, stubs[2], "one") as held:
            held.first()
            response = gateway.ask(id=id, headers={"steelyard-model": "one", "steelyard-timeout-ms": "200"})
            refused(response, 503, "deadline")
        stubs[2].never("request", id=id)

    def test_in_the_middle_of_an_answer(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        """Too late for a status: the answer is cut, visibly, or runs on; it never ends as if it were whole."""

        def begun() -> bool:
            """False: this machine was so slow that not even the answer's head came in time."""
            id = new_id()
            with gateway.connect(timeout=3) as connection:
                headers = {"steelyard-model": "small", "steelyard-timeout-ms": "300"}
                connection.send(request("POST", id=id, headers=headers, script=scripts.endless(new_id("never"))))
                response = connection.begin()
                if response.status in (503, 504):
                    return False
                with contextlib.suppress(Truncated, AssertionError):  # cut, or still open after three seconds
                    connection.finish(response)
                assert not response.complete
            stubs[0].wait_left(id)
            return True

        wait_until(begun, "never a quiet moment")

    @pytest.mark.parametrize("value", ["", "abc", "-5", "1e99", "99999999999999999999", "5 s", "0x10", "nan"])
    def test_nonsense_is_ignored_or_refused(self, gateway: Serving, value: str) -> None:
        for name in ("steelyard-timeout-ms", "grpc-timeout", "x-envoy-expected-rq-timeout-ms"):
            assert gateway.ask(headers={"steelyard-model": "small", name: value}).status in (200, 400)

    def test_no_time_at_all(self, gateway: Serving) -> None:
        response = gateway.ask(headers={"steelyard-model": "small", "steelyard-timeout-ms": "0"})
        assert response.status in (200, 400, 503, 504)


def too_late(gateway: Serving, stub: StubReplica, **headers: str) -> bool:
    """Asks a replica that does not answer. False: this machine was so slow that it was too late to send it there."""
    id, given = new_id(), {name.replace("_", "-"): value for name, value in headers.items()}
    response = gateway.ask(id=id, headers=given, script=scripts.silent())
    assert response.status in (503, 504), response
    assert response.headers["steelyard-reason"]
    if not seen_by([stub], id):
        return False
    stub.wait_left(id)
    return True


class TestOrder:
    def test_urgent_first(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        with Held(gateway, stubs[2], "one") as held:
            held.first()
            low = held.add(steelyard_priority="-1")
            high = held.add(steelyard_priority="5")
            # A third is refused once both are in line.
            while gateway.ask(headers={"steelyard-model": "one", "steelyard-priority": "-9"}).status == 200:
                pass
            stubs[2].open(held.gate)
            for id in (low, high):
                stubs[2].wait("request", id=id)
            order = [id for id in stubs[2].ids() if id in (low, high)]
            assert order == [high, low]

    def test_a_client_cannot_jump_the_queue(self, gateway: Serving, stubs: list[StubReplica]) -> None:
        """Neither by its priority nor by names of tenants: the other's requests are served in turn with its own."""
        with Held(gateway, stubs[1], "crowded") as held:
            held.first()
            for number in range(FIRST_CLIENT_REQUESTS):
                held.add(source="127.0.0.2", steelyard_priority="999", x_tenant=f"made-up-{number}")
            others = [held.add(source="127.0.0.3", x_tenant="b") for _ in range(SECOND_CLIENT_REQUESTS)]
            # One that gives way to all of them is refused once all are in line.
            last = gateway.ask(headers={"steelyard-model": "crowded", "steelyard-priority": "-9"})
            assert last.headers["steelyard-reason"] in ("queue_full", "preempted")
            stubs[1].open(held.gate)
            for id in held.ids:
                stubs[1].wait("request", id=id)
            served = [id for id in stubs[1].ids() if id in held.ids[1:]]
            places = [place for place, id in enumerate(served) if id in others]
            assert all(place <= fair for place, fair in zip(places, (1, 3, 5), strict=True)), places

    @pytest.mark.parametrize("value", ["", "abc", "1.5", "99999999999999999999", "--1"])
    def test_nonsense_as_priority(self, gateway: Serving, value: str) -> None:
        response = gateway.ask(headers={"steelyard-model": "small", "steelyard-priority": value})
        assert response.status in (200, 400)

    def test_one_at_a_time_is_never_exceeded(self, stubs: list[StubReplica]) -> None:
        with StubReplica("alone") as alone, Serving(config({"*": model(alone, concurrency=1)})) as own:
            connections = [own.connect() for _ in range(40)]
            ids = [new_id() for _ in connections]
            for id, connection in zip(ids, connections, strict=True):
                connection.send(request("POST", id=id, script=scripts.slow(0.01)))
            for number, connection in enumerate(connections):
                if number % 5 == 4:
                    connection.reset()  # who leaves gives back its slot, and no other takes it before it is free
                else:
                    assert connection.response().status == 200
                    connection.close()
            assert max(event["active"] for event in alone.of("request")) == 1

    def test_two_workers_count_each_other_s_load(self, stubs: list[StubReplica]) -> None:
        """Least connections over two workers is as even as over one."""
        settings = config({"*": model(*stubs, policy="least_connections")}, workers=2)
        gate, connections = new_id("gate"), []
        with Serving(settings) as own:
            for _ in range(24):  # the kernel picks the worker: of so many, each surely gets one
                id, connection = new_id(), own.connect()
                connection.send(request("POST", id=id, script=scripts.held(gate)))
                connections.append(connection)
                wait_until(lambda id=id: any(stub.of("waiting", id=id) for stub in stubs), "it reaches a replica")
            takers = {own.worker_of(connection) for connection in connections}
            held = [len(stub.of("waiting", gate=gate)) for stub in stubs]
            for stub in stubs:
                stub.open(gate)
            for connection in connections:
                assert connection.response().status == 200
                connection.close()
        assert len(takers) == 2, "one worker took all connections"
        assert max(held) - min(held) <= 1, held

    def test_a_late_request_is_hedged_and_the_loser_cancelled(self, stubs: list[StubReplica]) -> None:
        a, b, _ = stubs
        hedge = {"enabled": True, "budget": 1.0, "quantile": 0.9}
        settings = config({"*": model(a, b, idempotent=True, hedge=hedge, policy="round_robin")})
        with Serving(settings) as own, nothing_left(own), own.connect() as connection:
            for _ in range(60):
                assert connection.ask("POST", script=scripts.slow(0.01)).status == 200
            a.answer_all(scripts.held(new_id("gate")))

            def late() -> str:
                """The id of one that was sent to the first; nothing, if it was the other's turn."""
                id = new_id()
                response = connection.ask("POST", id=id)
                assert response.headers["steelyard-replica"] == "b"
                assert f'"{id}"'.encode() in response.body
                return id if seen_by([a], id) else ""

            a.wait_left(wait_until(late, "none was late"))
            a.answer_all(None)

    def test_a_session_stays_where_it_is(self, gateway: Serving) -> None:
        homes: dict[str, set[str]] = {}
        for number in range(60):
            session = f"session-{number % 12}"
            response = gateway.ask(headers={"steelyard-model": "sticky", "steelyard-session": session})
            homes.setdefault(session, set()).add(response.headers["steelyard-replica"])
        assert all(len(home) == 1 for home in homes.values()), homes
        assert len(set.union(*homes.values())) > 1
