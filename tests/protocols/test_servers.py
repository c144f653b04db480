"""The dialects of one server each: what they add to those of their families, and that no path is theirs unasked."""

import json

import pytest

from steelyard.config import parse_config
from steelyard.gateway.routing.router import Router
from steelyard.protocols import DIALECTS, SERVER_DIALECTS, ApiCall, BodyInfo, MetricsLocation, ServedModel, make_dialect
from steelyard.protocols.dialects.openai import MAX_UNREAD_CHARS
from steelyard.protocols.dialects.tgi import DEFAULT_NEW_TOKENS

tgi, torchserve = make_dialect("tgi"), make_dialect("torchserve")
FAMILIES = {"vllm": "openai", "sglang": "openai", "tgi": "openai", "triton": "oip"}
FLEET = [ServedModel("m", 1, 1, 0), ServedModel("org/model", 0, 1, 7)]
PATHS = [
    *("/v1/models", "/v1/models/m", "/v1/chat/completions", "/v1/files", "/v2", "/v2/health/ready", "/v2/rerank"),
    *("/v2/models/m/ready", "/v2/models/m/infer", "/health", "/metrics", "/predict"),
]


def test_there_is_always_one_that_takes_what_is_left():
    assert set(DIALECTS) > SERVER_DIALECTS
    assert list(DIALECTS)[-1] == "http"


@pytest.mark.parametrize(("name", "family"), FAMILIES.items())
def test_a_server_speaks_as_its_family(name, family):
    ours, theirs = make_dialect(name), make_dialect(family)
    for path in PATHS:
        for method in ("GET", "POST", "DELETE"):
            call = ours.call(method, path)
            assert call == theirs.call(method, path)
            if call is not None:
                assert ours.local_reply(call, path, FLEET) == theirs.local_reply(call, path, FLEET)
                assert ours.read_body(call, b'{"model":"m","n":2}', {}) == theirs.read_body(
                    call, b'{"model":"m","n":2}', {}
                )
                assert ours.estimate_body(call, 99) == theirs.estimate_body(call, 99)
    assert ours.error(503, "no_replica", "Wait.") == theirs.error(503, "no_replica", "Wait.")
    assert ours.wanted_headers == theirs.wanted_headers


def test_who_tells_its_load_and_where():
    locations = {name: make_dialect(name).metrics for name in DIALECTS}
    assert locations == {
        "openai": None,
        "vllm": MetricsLocation("/metrics", 0),
        "sglang": MetricsLocation("/metrics", 0),
        "tgi": MetricsLocation("/metrics", 0),
        "oip": None,
        "triton": MetricsLocation("/metrics", 8002),
        "torchserve": MetricsLocation("/metrics", 8082),
        "rayserve": None,
        "bentoml": None,
        "http": None,
    }
    assert [name for name in DIALECTS if make_dialect(name).sends_orca] == ["vllm"]


# ---------------------------------------------------------------------- in the gateway


def spoken(fleet: str, *lines: str) -> list[str]:
    router = Router(parse_config(fleet))
    return [router.find(f"{line} HTTP/1.1".encode()).dialect.name for line in lines]


LINES = ("GET /v1/models", "POST /v1/completions", "GET /v2/health/ready", "POST /generate", "POST /predictions/m")


@pytest.mark.parametrize(
    ("dialects", "names"),
    [
        (["openai"], ["openai", "openai", "oip", "http", "http"]),
        (["vllm"], ["vllm", "vllm", "oip", "http", "http"]),
        (["tgi"], ["tgi", "tgi", "oip", "tgi", "http"]),
        (["triton"], ["openai", "http", "triton", "http", "http"]),
        (["torchserve"], ["openai", "http", "oip", "http", "torchserve"]),
        (["sglang", "torchserve"], ["sglang", "sglang", "oip", "sglang", "torchserve"]),
        ([""], ["openai", "openai", "oip", "http", "http"]),
        (["", "vllm"], ["openai", "openai", "oip", "http", "http"]),
        (["", "tgi"], ["openai", "openai", "oip", "tgi", "http"]),
        (["http"], ["http"] * 5),
    ],
)
def test_a_fleet_speaks_what_it_is_told_to(dialects, names):
    models = "\n".join(f"  m{place}: {{dialect: '{name}', replicas: []}}" for place, name in enumerate(dialects))
    assert spoken(f"models:\n{models}", *LINES) == names


# ---------------------------------------------------------------------- TGI


@pytest.mark.parametrize("path", ["/", "/generate", "/generate/", "/generate_stream"])
def test_the_own_endpoints_of_tgi(path):
    streams = path == "/generate_stream"
    assert tgi.call("POST", path) == ApiCall("generate", reads_body=True, idempotent=True, streams=streams)
    assert tgi.call("GET", path) is None


@pytest.mark.parametrize(
    ("body", "features"),
    [
        ({"inputs": "hello"}, (5.0, DEFAULT_NEW_TOKENS, 1.0)),
        ({"inputs": "grüße", "parameters": {"max_new_tokens": 20, "do_sample": True}}, (5.0, 20.0, 1.0)),
        ({"inputs": "hello", "parameters": {"max_new_tokens": 20, "best_of": 3}, "stream": True}, (5.0, 20.0, 3.0)),
        ({"inputs": "hello", "parameters": {"max_new_tokens": None, "best_of": None}}, (5.0, DEFAULT_NEW_TOKENS, 1.0)),
        ({"inputs": "hello", "parameters": None}, (5.0, DEFAULT_NEW_TOKENS, 1.0)),
        ({"inputs": "hello", "parameters": {"max_new_tokens": -1}}, (5.0, DEFAULT_NEW_TOKENS, 1.0)),
        ({"model": "nobody", "inputs": ""}, (0.0, DEFAULT_NEW_TOKENS, 1.0)),
        ({}, (0.0, DEFAULT_NEW_TOKENS, 1.0)),
    ],
)
def test_generate_is_measured_by_what_goes_in_and_may_come_out(body, features):
    call = tgi.call("POST", "/generate")
    streams = "stream" in body
    assert tgi.read_body(call, json.dumps(body).encode(), {}) == BodyInfo("", features, streams=streams)
    call = tgi.call("POST", "/generate_stream")
    assert tgi.read_body(call, json.dumps(body).encode(), {}) == BodyInfo("", features, streams=True)


def test_what_tgi_cannot_read_is_guessed():
    call = tgi.call("POST", "/")
    assert tgi.read_body(call, b'{"inputs":', {}) == BodyInfo("", (10.0, DEFAULT_NEW_TOKENS, 1.0), streams=True)
    assert tgi.estimate_body(call, 10**9) == BodyInfo("", (MAX_UNREAD_CHARS, DEFAULT_NEW_TOKENS, 1.0), streams=True)


# ---------------------------------------------------------------------- TorchServe


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("POST", "/predictions/m", ApiCall("predict", "m", idempotent=True)),
        ("POST", "/predictions/m/", ApiCall("predict", "m", idempotent=True)),
        ("PUT", "/predictions/m/2.0", ApiCall("predict", "m", idempotent=True)),
        ("GET", "/predictions/two%20words", ApiCall("predict", "two words", idempotent=True)),
        ("PATCH", "/predictions/m", ApiCall("predict", "m")),
        ("POST", "/explanations/m", ApiCall("explain", "m", idempotent=True)),
        ("POST", "/predictions", None),
        ("POST", "/predictions/", None),
        ("POST", "/predictions/m/1/2", None),
        ("POST", "/predictionsx/m", None),
        ("GET", "/ping", None),
        ("GET", "/models/m", None),
    ],
)
def test_the_paths_of_torchserve(method, path, call):
    assert torchserve.call(method, path) == call


def test_a_prediction_counts_by_its_bytes():
    call = torchserve.call("POST", "/predictions/m")
    assert (
        torchserve.read_body(call, b"12345", {}) == torchserve.estimate_body(call, 5) == BodyInfo("", (5.0, 0.0, 0.0))
    )
