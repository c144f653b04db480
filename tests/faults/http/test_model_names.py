"""What is routed as a small model is not run as a big one: as bytes on a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import Serving, StubReplica, config, new_id, request

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def stub() -> Iterator[StubReplica]:
    with StubReplica("a") as stub:
        yield stub


@pytest.fixture(scope="module")
def gateway(stub: StubReplica) -> Iterator[Serving]:
    """One server runs both models, under one memory ledger."""
    models = {
        name: {"replicas": [{**stub.config, "device": "box"}], "memory": {"weights": weights}}
        for name, weights in (("small", "1MiB"), ("big", "900MiB"))
    }
    with Serving(config(models, devices={"box": {"memory": "2GiB"}}, limits={"replay_bytes": "64KiB"})) as serving:
        yield serving


ATTACKS = {
    "header": (CHAT, {"steelyard-model": "small"}, b'{"model":"big"}'),
    "path": ("/v2/models/big/infer", {"steelyard-model": "small"}, b"{}"),
    "twice": (CHAT, {}, b'{"model":"big","x":1,"model":"small"}'),
    "other case": (CHAT, {}, b'{"model":"small","MODEL":"big"}'),
    "NaN": (CHAT, {"steelyard-model": "small"}, b'{"a":{"model":"small"},"b":NaN,"model":"big"}'),
    "byte order mark": (CHAT, {"steelyard-model": "small"}, b'\xef\xbb\xbf{"model":"big"}'),
    "UTF-16": (CHAT, {"steelyard-model": "small"}, '{"model":"big"}'.encode("utf-16")),
    "form": (
        CHAT,
        {"content-type": "application/x-www-form-urlencoded"},
        b'{"model":"small","x":"&model=big&"}',
    ),
    "large": (CHAT, {}, b'{"model":"small","x":"' + b"x" * (1 << 20) + b'","model":"big"}'),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_routed_model_is_the_executed_one(gateway: Serving, stub: StubReplica, attack: str) -> None:
    target, headers, body = ATTACKS[attack]
    id = new_id()
    with gateway.connect() as connection:
        connection.try_send(request("POST", target, id=id, headers=headers, body=body))
        response = connection.response("POST")
    assert response.status in (400, 413)
    assert response.headers["steelyard-reason"] in ("model_contradiction", "body_ambiguous", "model_beyond_buffer")
    stub.never("request", id=id)


def test_clear_requests_are_served(gateway: Serving, stub: StubReplica) -> None:
    for model in ("small", "big"):
        for headers in ({}, {"steelyard-model": model}):
            id = new_id()
            body = f'{{"model":"{model}","tools":[{{"properties":{{"model":1}}}}]}}'.encode()
            assert gateway.ask("POST", CHAT, id=id, headers=headers, body=body).status == 200
            assert stub.wait("body", id=id)["length"] == len(body)
