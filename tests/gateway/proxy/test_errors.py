"""How the gateway says no: in the words of the dialect, with a reason for machines and a time to come back."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from ..reading import Message, answer, read_answer, request
from ..stage import Stage

MODELS = """
models:
  talk: {dialect: openai, concurrency: 1, max_queue: 0, queue_timeout: 5s, replicas: [{url: 'http://a:1'}]}
  see: {dialect: oip, concurrency: 1, max_queue: 0, replicas: [{url: 'http://b:1'}]}
  page: {dialect: http, paths: [/page], concurrency: 1, max_queue: 0, replicas: [{url: 'http://c:1'}]}
  empty: {dialect: openai, replicas: []}
"""


@pytest.fixture
def fleet(staged: Callable[..., Stage]) -> Stage:
    return staged(MODELS)


def ask(stage: Stage, line: str, *headers: str, body: bytes | None = None) -> Message:
    client = stage.client()
    client.says(request(line, *headers, body=body))
    response = read_answer(client.hears(), line.split(" ")[0])
    assert response["x-request-id"]
    assert response["content-type"] == "application/json"
    assert not client.closed
    client.ends()
    return response


def openai(model: str) -> dict[str, Any]:
    return {"line": "POST /v1/chat/completions", "body": json.dumps({"model": model, "messages": []}).encode()}


INFER = {"line": "POST /v2/models/see/infer", "body": b'{"inputs": []}'}


def test_openai_says_it_as_openai_does(fleet: Stage) -> None:
    response = ask(fleet, **openai("nobody"))
    assert response.status == 404
    assert response["steelyard-reason"] == "unknown_model"
    problem = json.loads(response.body)["error"]
    assert problem["code"] == "model_not_found"
    assert problem["param"] == "model"
    assert problem["type"] == "invalid_request_error"
    assert "model" in problem["message"]
    fleet.check_idle(counted=1)


def test_oip_says_it_as_oip_does(fleet: Stage) -> None:
    response = ask(fleet, "POST /v2/models/nobody/infer", body=b"{}")
    assert (response.status, response["steelyard-reason"]) == (404, "unknown_model")
    assert isinstance(json.loads(response.body)["error"], str)


@pytest.mark.parametrize("how", [openai("talk"), INFER, {"line": "POST /page", "body": b"x"}])
def test_a_full_line_is_told_in_every_dialect(fleet: Stage, how: dict[str, Any]) -> None:
    busy = fleet.client()
    busy.says(request(how["line"], body=how["body"]))
    response = ask(fleet, **how)
    assert (response.status, response["steelyard-reason"]) == (503, "queue_full")
    assert int(response["retry-after"]) >= 1
    problem = json.loads(response.body)["error"]
    assert "waiting" in (problem if isinstance(problem, str) else problem["message"])
    fleet.replica().says(answer())
    fleet.check_idle(counted=2)


def test_no_replica(fleet: Stage) -> None:
    response = ask(fleet, **openai("empty"))
    assert (response.status, response["steelyard-reason"]) == (503, "no_replica")
    assert "retry-after" in response
    assert json.loads(response.body)["error"]["type"] == "server_error"
    assert fleet.account("empty").refused == 1
    fleet.check_idle(counted=1)


def test_a_head_request_is_refused_without_a_body(fleet: Stage) -> None:
    response = ask(fleet, "HEAD /nowhere")
    assert response.status == 404
    assert int(response["content-length"]) > 0
    assert response.body == b""


def test_a_request_that_names_no_model(fleet: Stage) -> None:
    response = ask(fleet, "POST /v1/chat/completions", body=b"{}")
    assert response.status == 404
    assert "steelyard-model" in json.loads(response.body)["error"]["message"]
    assert fleet.proxy.recorder.unrouted.client_error == 1


def test_the_model_may_be_named_in_a_header(fleet: Stage) -> None:
    client = fleet.client()
    client.says(request("POST /anything", "steelyard-model: see", body=b"\x00"))
    assert fleet.replica().place == "b:1"


def test_a_name_in_the_middle_of_a_body_too_large_to_read(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS + "limits: {replay_bytes: 100}\n")
    client = stage.client()
    body = b'{"messages": "' + b"x" * 200 + b'", "model": "talk"}'
    client.says(request("POST /v1/chat/completions", f"content-length: {len(body)}"), body[:150])
    response = read_answer(client.hears())
    assert (response.status, response["steelyard-reason"]) == (413, "model_beyond_buffer")
    assert client.transport.eof_heard
    stage.check_idle(counted=1)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", 400),
        (b"TRACE / HTTP/1.1\r\nhost: a\r\n\r\n", 405),
        (b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nhost: a\r\nsteelyard-priority: high\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nsteelyard-timeout-ms: soon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
def test_what_cannot_be_read_ends_the_connection(fleet: Stage, data: bytes, status: int) -> None:
    client = fleet.client()
    client.says(data + request("GET /page"))
    response = read_answer(client.hears())
    assert (response.status, response["connection"]) == (status, "close")
    assert json.loads(response.body)["error"]
    assert response["steelyard-reason"] in ("bad_request", "method_not_allowed")
    assert client.transport.eof_heard
    assert fleet.dialling == []
    fleet.check_idle(counted=1)


def test_who_lost_its_place_in_line_is_told(staged: Callable[..., Stage]) -> None:
    stage = staged("models: {m: {concurrency: 1, max_queue: 1, replicas: [{url: 'http://a:1'}]}}")
    running, humble, urgent = (stage.client() for _ in range(3))
    running.says(request())
    humble.says(request("GET /", "steelyard-priority: -1"))
    urgent.says(request("GET /", "steelyard-priority: 5"))
    stage.pass_time(0.01)
    response = read_answer(humble.hears())
    assert (response.status, response["steelyard-reason"]) == (503, "preempted")
    stage.replica().says(answer())
    stage.replica().says(answer(b"urgent"))
    assert read_answer(urgent.hears()).body == b"urgent"
    stage.check_idle(counted=3)


def test_the_fleet_is_shown_by_the_gateway_itself(fleet: Stage) -> None:
    client = fleet.client()
    client.says(request("GET /v1/models") + request("GET /v2/health/ready") + request("GET /v1/models/nobody"))
    data = client.hears()
    assert data.count(b"HTTP/1.1 ") == 3
    assert b'"id":"talk"' in data.replace(b" ", b"")
    assert fleet.dialling == []
    fleet.check_idle(counted=3)


def test_an_old_client_that_keeps_its_connection_keeps_it_after_a_refusal(fleet: Stage) -> None:
    client = fleet.client()
    for _ in range(2):
        client.says(request("GET /nowhere", "connection: keep-alive", version="1.0"))
        response = read_answer(client.hears())
        assert (response.status, response["connection"]) == (404, "keep-alive")
    assert not client.closed
