"""How each server is asked whether a model is ready, and what its answers mean, with answers as servers give them."""

import json

import pytest

from steelyard.protocols import ProbePlan, ServerReadiness, ServerRequest, make_dialect, readiness_by_status
from steelyard.protocols.health import escape_name

READY, LOADING, NOT_FOUND, BROKEN = (
    ServerReadiness.READY,
    ServerReadiness.LOADING,
    ServerReadiness.NOT_FOUND,
    ServerReadiness.BROKEN,
)
HEALTH = ServerRequest("/health")


def judged(name: str, status: int, body: object = b"", model: str = "m", which: int = 0) -> ServerReadiness:
    """What the dialect makes of this answer to its first question (or another) about readiness."""
    dialect = make_dialect(name)
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialect.readiness(dialect.probe_plan(model).ready[which], status, text, model)


@pytest.mark.parametrize(
    ("status", "readiness"),
    [
        *((200, READY), (204, READY), (299, READY)),
        *((404, NOT_FOUND), (405, NOT_FOUND), (501, NOT_FOUND)),
        *(
            (100, LOADING),
            (301, LOADING),
            (400, LOADING),
            (401, LOADING),
            (429, LOADING),
            (500, LOADING),
            (503, LOADING),
        ),
    ],
)
def test_a_status_alone(status, readiness):
    assert readiness_by_status(status) is readiness


@pytest.mark.parametrize(
    ("name", "model", "questions"),
    [
        ("http", "m", ProbePlan((HEALTH,))),
        ("openai", "m", ProbePlan((HEALTH,))),
        ("tgi", "m", ProbePlan((HEALTH,))),
        ("vllm", "m", ProbePlan((HEALTH, ServerRequest("/v1/models")))),
        ("vllm", "*", ProbePlan((HEALTH, ServerRequest("/v1/models")))),
        ("sglang", "m", ProbePlan((ServerRequest("/health_generate", fallback=HEALTH),))),
        ("oip", "m", ProbePlan((ServerRequest("/v2/models/m/ready"),), ServerRequest("/v2/health/live"))),
        ("oip", "*", ProbePlan((ServerRequest("/v2/health/ready"),), ServerRequest("/v2/health/live"))),
        ("triton", "m", ProbePlan((ServerRequest("/v2/models/m/ready"),), ServerRequest("/v2/health/live"))),
        ("torchserve", "m", ProbePlan((ServerRequest("/models/m", port=8081),))),
        ("torchserve", "*", ProbePlan((ServerRequest("/ping"),))),
    ],
)
def test_what_is_asked(name, model, questions):
    assert make_dialect(name).probe_plan(model) == questions


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("org/model", "org%2Fmodel"),
        ("two words", "two%20words"),
        ("grüße", "gr%C3%BC%C3%9Fe"),
        ("50%", "50%25"),
        ("a?b#c", "a%3Fb%23c"),
        ("Llama-3.1_8B~x", "Llama-3.1_8B~x"),
        ("\ud800", "%3F"),
    ],
)
def test_names_are_one_part_of_a_path(model, part):
    assert escape_name(model) == part
    assert make_dialect("oip").probe_plan(model).ready[0].path == f"/v2/models/{part}/ready"
    assert make_dialect("torchserve").probe_plan(model).ready[0].path == f"/models/{part}"


# ---------------------------------------------------------------------- the Open Inference Protocol


@pytest.mark.parametrize("name", ["oip", "triton"])
@pytest.mark.parametrize(
    ("status", "body", "readiness"),
    [
        (200, b"", READY),  # Triton
        (200, {"name": "m", "ready": True}, READY),
        (200, {"name": "m", "ready": False}, LOADING),
        (200, b"nonsense", READY),
        (400, b"", LOADING),  # Triton: it has the model, or not
        (503, {"error": "Model with name m is not ready."}, LOADING),  # KServe
        (404, {"error": "Model m not found"}, LOADING),  # MLServer, before it has begun to load
        (404, {"error": "Model with requested name is not found"}, LOADING),  # OpenVINO
        (404, {"detail": "Not Found"}, NOT_FOUND),  # FastAPI: no such server
        (404, {"error": "Not Found", "path": "/v2/models/m/ready"}, NOT_FOUND),
        (404, {"error": "Cannot GET /v2/models/m/ready"}, NOT_FOUND),
        (404, {"error": {"message": "no model", "code": 404}}, NOT_FOUND),
        (404, b"404 page not found", NOT_FOUND),
        (405, b"", NOT_FOUND),
    ],
)
def test_a_model_of_the_open_inference_protocol(name, status, body, readiness):
    assert judged(name, status, body) is readiness


def test_a_server_of_the_open_inference_protocol():
    assert judged("oip", 200, {"ready": True}, "*") is READY
    assert judged("oip", 200, {"ready": False}, "*") is LOADING
    assert judged("oip", 400, b"", "*") is LOADING
    live = make_dialect("oip").probe_plan("m").live
    assert make_dialect("oip").readiness(live, 200, b'{"live":true}', "m") is READY
    assert make_dialect("oip").readiness(live, 200, b'{"live":false}', "m") is LOADING


# ---------------------------------------------------------------------- vLLM and its kin


@pytest.mark.parametrize(
    ("status", "body", "readiness"),
    [
        (200, b"", READY),
        (503, b"", BROKEN),  # EngineDeadError
        (503, {"error": "The model is currently scaling. Please try again later."}, LOADING),
        (500, b"", LOADING),
        (404, {"detail": "Not Found"}, NOT_FOUND),
    ],
)
def test_the_health_of_vllm(status, body, readiness):
    assert judged("vllm", status, body) is readiness


LIST = {"object": "list", "data": [{"id": "m", "object": "model", "parent": None}, {"id": "org/lora", "root": "x"}]}


@pytest.mark.parametrize(
    ("body", "model", "readiness"),
    [
        (LIST, "m", READY),
        (LIST, "org/lora", READY),
        (LIST, "other", LOADING),
        (LIST, "M", LOADING),
        (LIST, "*", READY),
        ({"object": "list", "data": []}, "*", LOADING),
        ({"object": "list", "data": []}, "m", LOADING),
        ({"object": "list"}, "*", LOADING),
        ({"data": [{"name": "m"}]}, "m", LOADING),
        (b'{"data":[{"id":"m"', "m", LOADING),  # cut
        (b"", "m", LOADING),
    ],
)
def test_the_models_of_vllm(body, model, readiness):
    assert judged("vllm", 200, body, model, which=1) is readiness


def test_a_list_that_is_not_given():
    assert judged("vllm", 401, {"error": "Unauthorized"}, which=1) is LOADING
    assert judged("vllm", 404, {"detail": "Not Found"}, which=1) is NOT_FOUND
    assert judged("vllm", 503, b"", which=1) is LOADING


@pytest.mark.parametrize("name", ["sglang", "tgi", "openai", "http"])
def test_who_tells_by_the_status(name):
    assert judged(name, 200) is READY
    assert judged(name, 503) is LOADING
    assert judged(name, 503, {"error": {"code": 503, "message": "Loading model"}}) is LOADING  # llama.cpp
    assert judged(name, 404) is NOT_FOUND


# ---------------------------------------------------------------------- TorchServe


def described(*states: str) -> list[dict[str, object]]:
    workers = [
        {"id": "9000", "startTime": "2018-10-02T13:44:53.034Z", "status": state, "gpu": False} for state in states
    ]
    return [{"modelName": "m", "modelVersion": "1.0", "minWorkers": 1, "workers": workers, "jobQueueStatus": {}}]


@pytest.mark.parametrize(
    ("status", "body", "readiness"),
    [
        (200, described("READY"), READY),
        (200, described("UNLOADING", "READY"), READY),
        (200, [*described(), *described("READY")], READY),
        (200, described("LOADING"), LOADING),
        (200, described(), LOADING),
        (200, [], LOADING),
        (200, {"status": "Healthy"}, LOADING),
        (200, b"", LOADING),
        (404, {"code": 404, "type": "ModelNotFoundException", "message": "Model not found: m"}, LOADING),
        (
            404,
            {"code": 404, "type": "ResourceNotFoundException", "message": "Requested resource is not found"},
            NOT_FOUND,
        ),
        (405, b"", NOT_FOUND),
        (400, {"code": 400, "type": "InvalidKeyException", "message": "Token Authorization failed."}, LOADING),
    ],
)
def test_a_model_of_torchserve_has_workers(status, body, readiness):
    assert judged("torchserve", status, body) is readiness


def test_torchserve_as_a_whole():
    assert judged("torchserve", 200, {"status": "Healthy"}, "*") is READY
    assert judged("torchserve", 500, {"status": "Unhealthy"}, "*") is LOADING
