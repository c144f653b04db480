"""Model control through the gateway, as bytes on a real socket: nothing reaches a server whose models are placed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Serving, StubReplica, config, new_id

LOAD = "/v2/repository/models/placed/load"


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    on_device = {"replicas": [{**stub.config, "device": "box"}]}
    models = {
        "placed": {"dialect": "triton", "placement": {}, "health": {}, "memory": {"weights": "1MiB"}, **on_device},
        "beside": {"dialect": "triton", **on_device},
    }
    with Serving(config(models, devices={"box": {"memory": "1GiB"}})) as serving:
        yield serving


@pytest.mark.parametrize("model", ["placed", "beside"])
@pytest.mark.parametrize(
    "target",
    [
        *(LOAD, f"/{LOAD}", "/v2/./repository/models/placed/load", f"/x/..{LOAD}", f"/%2e%2e{LOAD}", f"{LOAD}/"),
        *("/v2%2Frepository/models/placed/load", "/v2\\repository\\models\\placed\\load", f"http://gateway{LOAD}"),
        *("/%76%32/repository/models/placed/unload", "/v2/repository/models/beside/unload", "/v2/logging"),
    ],
)
def test_model_control_does_not_reach_the_server(gateway: Serving, stub: StubReplica, target: str, model: str) -> None:
    id = new_id()
    with gateway.connect() as connection:
        head = f"POST {target} HTTP/1.1\r\nhost: gateway\r\nx-test-id: {id}\r\nsteelyard-model: {model}\r\n"
        connection.send(f"{head}content-length: 2\r\n\r\n{{}}".encode())
        response = connection.response("POST")
    assert response.status in (400, 403)
    assert response.headers["steelyard-reason"] in ("bad_request", "model_control", "model_contradiction")
    stub.never("request", id=id)


def test_the_path_that_was_decided_on_is_the_one_sent(gateway: Serving, stub: StubReplica) -> None:
    id = new_id()
    with gateway.connect() as connection:
        target = "/x/..//%762/./models/beside/stats?q=%7e//.."
        connection.send(f"GET {target} HTTP/1.1\r\nhost: gateway\r\nx-test-id: {id}\r\n\r\n".encode())
        assert connection.response("GET").status == 200
    assert stub.request(id)["target"] == "/v2/models/beside/stats?q=%7e//.."
