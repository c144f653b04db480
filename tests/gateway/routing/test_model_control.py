"""Model control through the gateway: refused on every server whose models the gateway places."""

from collections.abc import Callable

import pytest

from ..reading import answer, read_answer, read_request, request
from ..stage import Stage

# `beside` is on the same server as the placed one, `other` is not.
FLEET = """
devices: {box: {memory: 1MiB}}
models:
  placed: {dialect: triton, placement: {}, replicas: [{url: 'http://127.0.0.1:1', device: box}]}
  beside: {dialect: triton, replicas: [{url: 'http://localhost:1', device: box}]}
  other: {dialect: triton, replicas: [{url: 'http://b:1', device: box}]}
"""
LOAD = "/v2/repository/models/placed/load"
SPELLED = (
    *(
        LOAD,
        "/v2/repository/models/beside/unload",
        "/v2/repository/models/nobody/load",
        "/v2/repository/x/models/y/load",
    ),
    *(f"/{LOAD}", "/v2//repository/models/placed/load", "/v2/./repository/models/placed/load", f"/x/..{LOAD}"),
    *(f"/%2e%2E{LOAD}", "/%76%32/repositor%79/models/placed/load", f"{LOAD}/", f"{LOAD}?a=b", f"http://gateway{LOAD}"),
    *("/V2/Repository/models/placed/load", f"/prefix{LOAD}"),
    *("/v2;x/repository/models/placed/load", "/v2/;/repository;a=b/models/placed/load"),
)
SETTINGS = (
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/beside/trace/setting",
    "/v2/cudasharedmemory/region/x/register",
)


@pytest.mark.parametrize("path", [*SPELLED, *SETTINGS, "/v1/load_lora_adapter", "/v2/systemsharedmemory/unregister"])
@pytest.mark.parametrize("model", ["beside", "placed"])
def test_control_of_a_placed_models_server_is_refused(staged: Callable[..., Stage], path: str, model: str) -> None:
    stage = staged(FLEET)
    client = stage.client()
    client.says(request(f"POST {path}", f"steelyard-model: {model}", body=b"{}"))
    response = read_answer(client.hears())
    named = {name for name in ("placed", "beside", "nobody") if f"/{name}/" in path}
    if named - {model}:
        assert (response.status, response["steelyard-reason"]) in ((403, "model_control"), (400, "model_contradiction"))
    else:
        assert (response.status, response["steelyard-reason"]) == (403, "model_control")
    assert stage.dialling == []
    stage.check_idle()


@pytest.mark.parametrize("path", ["/v2%2Frepository/models/placed/load", "/v2/repository%2Fmodels%2Fplaced%2Fload"])
def test_control_behind_escaped_slashes_is_refused(staged: Callable[..., Stage], path: str) -> None:
    stage = staged(FLEET)
    client = stage.client()
    client.says(request(f"POST {path}", "steelyard-model: beside", body=b"{}"))
    assert read_answer(client.hears()).status in (400, 403)
    assert stage.dialling == []


def test_the_refusal_is_in_the_words_of_the_dialect(staged: Callable[..., Stage]) -> None:
    client = staged(FLEET).client()
    client.says(request(f"POST {LOAD}", body=b"{}"))
    response = read_answer(client.hears())
    assert response.body.startswith(b'{"error":"Models on this server are loaded')
    assert not client.closed


@pytest.mark.parametrize(
    "line",
    ["POST /v2/repository/index", "GET /v2/logging", "GET /v2/models/beside/stats", "POST /v2/models/beside/infer"],
)
def test_what_changes_nothing_is_passed_on(staged: Callable[..., Stage], line: str) -> None:
    stage = staged(FLEET)
    client = stage.client()
    client.says(request(line, "steelyard-model: beside", body=b"{}"))
    stage.replica().says(answer(b"[]"))
    assert read_answer(client.hears()).status == 200


def test_other_servers_take_control_calls_on_the_path_that_was_decided_on(staged: Callable[..., Stage]) -> None:
    stage = staged(FLEET)
    client = stage.client()
    client.says(request("POST //v2/./repository/models/other/load?a=//b", body=b"{}"))
    replica = stage.replica()
    assert read_request(replica.hears()).first == "POST /v2/repository/models/other/load?a=//b HTTP/1.1"
    replica.says(answer(b"{}"))
    assert read_answer(client.hears()).status == 200
