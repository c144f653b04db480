"""The oip dialect, with bodies as tritonclient and others send them."""

import json

import pytest

import steelyard
from steelyard.protocols import ApiCall, BodyInfo, ServedModel, make_dialect
from steelyard.protocols.base import MAX_FEATURE
from steelyard.protocols.bodies.text import DEFAULT_OUTPUT_TOKENS

oip = make_dialect("oip")
# As tritonclient 2.73 makes it: the JSON, then 48 bytes of FP32 and a string with its length.
BINARY_JSON = (
    b'{"inputs":[{"name":"input","shape":[1,3,2,2],"datatype":"FP32","parameters":{"binary_data_size":48}},'
    b'{"name":"text","shape":[1,1],"datatype":"BYTES","parameters":{"binary_data_size":16}}],'
    b'"outputs":[{"name":"out","parameters":{"binary_data":true}}],"parameters":{"sequence_id":42,'
    b'"sequence_start":true,"sequence_end":false,"priority":1,"timeout":1000}}'
)
BINARY = BINARY_JSON + bytes(48) + b"\x0c\x00\x00\x00hello w\xc3\xb6rld"
FLEET = [ServedModel("busy", 2, 3, 0), ServedModel("loading", 0, 1, 0), ServedModel("org/model", 1, 1, 0)]


def peek(path: str, body: object, headers: dict[bytes, bytes] | None = None) -> BodyInfo:
    call = oip.call("POST", path)
    assert call is not None
    return oip.read_body(call, body if isinstance(body, bytes) else json.dumps(body).encode(), headers or {})


def infer(*inputs: dict[str, object], **fields: object) -> BodyInfo:
    return peek("/v2/models/m/infer", {"inputs": inputs, **fields})


# ---------------------------------------------------------------------- paths


@pytest.mark.parametrize(
    ("method", "path", "call"),
    [
        ("GET", "/v2", ApiCall("server", idempotent=True, local=True)),
        ("HEAD", "/v2/", ApiCall("server", idempotent=True, local=True)),
        ("GET", "/v2/health/live", ApiCall("live", idempotent=True, local=True)),
        ("GET", "/v2/health/ready", ApiCall("ready", idempotent=True, local=True)),
        ("GET", "/v2/models/m", ApiCall("metadata", "m", idempotent=True)),
        ("GET", "/v2/models/m/versions/3", ApiCall("metadata", "m", idempotent=True)),
        ("GET", "/v2/models/m/ready", ApiCall("model_ready", "m", idempotent=True, local=True)),
        ("GET", "/v2/models/m/versions/3/ready", ApiCall("model_ready", "m", idempotent=True)),
        ("POST", "/v2/models/m/infer", ApiCall("infer", "m", reads_body=True, idempotent=True)),
        ("POST", "/v2/models/m/versions/3/infer", ApiCall("infer", "m", reads_body=True, idempotent=True)),
        ("POST", "/v2/models/m/generate", ApiCall("generate", "m", reads_body=True, idempotent=True)),
        ("POST", "/v2/models/m/generate_stream", ApiCall("generate", "m", reads_body=True, idempotent=True)),
        ("GET", "/v2/models/m/infer", ApiCall("model_other", "m", idempotent=True)),
        ("GET", "/v2/models/m/config", ApiCall("model_other", "m", idempotent=True)),
        ("GET", "/v2/models/m/versions/3/stats", ApiCall("model_other", "m", idempotent=True)),
        ("POST", "/v2/models/m/trace/setting", ApiCall("model_other", "m")),
        ("GET", "/v2/models/stats", ApiCall("server_other", idempotent=True)),
        ("GET", "/v2/models", ApiCall("server_other", idempotent=True)),
        ("POST", "/v2/repository/index", ApiCall("index", idempotent=True)),
        ("POST", "/v2/repository/models/m/load", ApiCall("repository", "m")),
        ("POST", "/v2/repository/models/m/unload", ApiCall("repository", "m")),
        ("POST", "/v2/systemsharedmemory/region/r/register", ApiCall("server_other")),
        ("POST", "/v2/logging", ApiCall("server_other")),
    ],
)
def test_paths(method, path, call):
    assert oip.call(method, path) == call


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("org%2Fmodel", "org/model"),
        ("org/model", "org/model"),
        ("two%20words", "two words"),
        ("50%25", "50%"),
        ("gr%C3%BC%C3%9Fe", "grüße"),
        ("a+b", "a+b"),
        ("ready", "ready"),
        ("%FF", "\ufffd"),
        ("100%", "100%"),
    ],
)
def test_the_model_is_named_in_the_path(written, name):
    for ending in ("/infer", "/versions/1/infer", "", "/versions/2", "/ready", "/stats"):
        assert oip.call("POST", f"/v2/models/{written}{ending}").model == name
    assert oip.call("POST", f"/v2/repository/models/{written}/load").model == name


# ---------------------------------------------------------------------- bodies


def test_elements_batch_and_text():
    image = {"name": "x", "shape": [8, 3, 224, 224], "datatype": "FP32", "data": []}
    mask = {"name": "y", "shape": [8], "datatype": "BOOL", "data": [True] * 8}
    assert infer(image) == BodyInfo("", (8 * 3 * 224 * 224.0, 8.0, 0.0))
    assert infer(image, mask).features == (8 * 3 * 224 * 224.0 + 8, 8.0, 0.0)
    assert infer(mask, image).features[1] == 8.0


def test_strings_count_by_their_bytes_because_elements_do_not_tell_their_size():
    body = (
        b'{"inputs":[{"name":"text","shape":[2,1],"datatype":"BYTES","data":["ab","cde"]}],'
        b'"parameters":{"binary_data_output":true}}'
    )
    assert peek("/v2/models/m/infer", body).features == (2.0, 2.0, float(len('["ab","cde"]')))


def test_shapes_that_cannot_be():
    assert infer({"shape": [-3, -4]}).features == (0.0, 0.0, 0.0)
    assert infer({"shape": [1e9, 1e9]}).features == (MAX_FEATURE, 1e9, 0.0)
    assert infer({"shape": [1e300, 1e300, 1e300, 1e300]}, {"shape": [2]}).features == (MAX_FEATURE, MAX_FEATURE, 0.0)
    assert infer({"shape": []}).features == (1.0, 0.0, 0.0), "a scalar is one element"
    assert infer().features == (0.0, 0.0, 0.0)


def test_only_the_json_before_the_tensors_is_read():
    headers = {b"inference-header-content-length": b"%d" % len(BINARY_JSON)}
    assert peek("/v2/models/m/infer", BINARY, headers) == BodyInfo("", (13.0, 1.0, 16.0), "42")


@pytest.mark.parametrize("length", [b"", b"0", b"7", b"9999999", b"-5", b"0x10", b"1" * 5000, b"\xc2\xb2", b" 353"])
def test_a_wrong_length_leads_to_a_guess(length):
    found = peek("/v2/models/m/infer", BINARY, {b"inference-header-content-length": length})
    assert found == BodyInfo("", (len(BINARY) / 4, 1.0, 0.0))


def test_a_tensor_that_fills_the_body_is_guessed_well():
    call = oip.call("POST", "/v2/models/m/infer")
    elements = 3 * 1024 * 1024
    (guessed, batch, _) = oip.estimate_body(call, 4 * elements + 200).features
    assert guessed == pytest.approx(elements, rel=0.001)
    assert batch == 1.0


@pytest.mark.parametrize(("parameters", "key"), [({"sequence_id": 42}, "42"), ({"sequence_id": "s"}, "s")])
def test_a_sequence_is_what_a_replica_holds_warm(parameters, key):
    assert infer(parameters=parameters).key == key


@pytest.mark.parametrize("parameters", [None, {}, {"sequence_id": 0}, {"sequence_id": ""}, {"priority": 1}])
def test_no_sequence(parameters):
    assert infer(parameters=parameters).key is None


@pytest.mark.parametrize(
    ("body", "features"),
    [
        ({"text_input": "abc", "max_tokens": 20, "bad_words": ""}, (3.0, 20.0, 1.0)),
        ({"text_input": "abc", "parameters": {"max_tokens": 7, "stream": True}}, (3.0, 7.0, 1.0)),
        ({"text_input": "abc"}, (3.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
        ({"text_input": "abc", "max_tokens": -1}, (3.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
        ({"text_input": ["abc", "d"], "max_tokens": 5}, (4.0, 5.0, 2.0)),
    ],
)
def test_generate_is_measured_as_the_openai_dialect_measures(body, features):
    assert peek("/v2/models/m/generate", body) == BodyInfo("", features)
    assert peek("/v2/models/m/generate_stream", body) == BodyInfo("", features)


# ---------------------------------------------------------------------- what the gateway answers


def ask(path: str, models: list[ServedModel]) -> tuple[int, object] | None:
    call = oip.call("GET", path)
    assert call is not None
    assert call.local
    answer = oip.local_reply(call, path, models)
    return None if answer is None else (answer.status, json.loads(answer.body))


def test_the_gateway_lives_whatever_the_fleet_does():
    assert ask("/v2/health/live", []) == (200, {"live": True})
    assert ask("/v2/health/live", [ServedModel("*", 0, 0, 0)]) == (200, {"live": True})


def test_ready_when_any_model_can_be_served():
    assert ask("/v2/health/ready", FLEET) == (200, {"ready": True})
    assert ask("/v2/health/ready", [ServedModel("*", 1, 1, 0)]) == (200, {"ready": True})
    assert ask("/v2/health/ready", [ServedModel("loading", 0, 1, 0)]) == (503, {"ready": False})
    assert ask("/v2/health/ready", []) == (503, {"ready": False})


def test_a_model_is_ready_when_a_replica_is():
    assert ask("/v2/models/busy/ready", FLEET) == (200, {"name": "busy", "ready": True})
    assert ask("/v2/models/loading/ready", FLEET) == (503, {"name": "loading", "ready": False})
    assert ask("/v2/models/org%2Fmodel/ready", FLEET) == (200, {"name": "org/model", "ready": True})
    assert ask("/v2/models/none/ready", FLEET) == (404, {"error": "The model 'none' is not served here."})


def test_with_a_model_for_every_name_a_replica_says_what_the_fleet_cannot():
    anything = [*FLEET, ServedModel("*", 1, 1, 0)]
    assert ask("/v2/models/none/ready", anything) is None
    assert ask("/v2/models/loading/ready", anything) == (503, {"name": "loading", "ready": False})
    assert ask("/v2", anything) is None


def test_the_server_describes_itself():
    described = {"name": "steelyard", "version": steelyard.__version__, "extensions": []}
    assert ask("/v2", FLEET) == (200, described)


def test_an_error_is_one_string_because_tritonclient_reads_nothing_else():
    answer = oip.error(503, "no_replica", "Try again later.")
    assert (answer.status, json.loads(answer.body)) == (503, {"error": "Try again later."})
