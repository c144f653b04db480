"""The http dialect: whatever is no other's."""

import json

import pytest

from steelyard.protocols import ApiCall, BodyInfo, make_dialect

http = make_dialect("http")


@pytest.mark.parametrize(
    ("method", "kind", "again"),
    [
        ("GET", "get", True),
        ("HEAD", "head", True),
        ("OPTIONS", "options", True),
        ("TRACE", "trace", True),
        ("PUT", "put", True),
        ("DELETE", "delete", True),
        ("POST", "post", False),
        ("PATCH", "patch", False),
        ("CONNECT", "connect", False),
        ("BREW", "other", False),
        ("get", "other", False),
    ],
)
def test_a_method_may_run_twice_if_rfc_9110_says_so(method, kind, again):
    for path in ("/", "/v1/chat/completions", "/v2", "*", ""):
        assert http.call(method, path) == ApiCall(kind, idempotent=again)


def test_a_body_counts_by_its_length_and_names_nothing():
    call = http.call("POST", "/predict")
    body = b'{"model":"m","prompt_cache_key":"k"}'
    assert http.read_body(call, body, {}) == http.estimate_body(call, len(body)) == BodyInfo("", (36.0, 0.0, 0.0))


def test_an_error_has_a_code_and_a_sentence():
    answer = http.error(503, "queue_full", "Try again later.")
    assert answer.status == 503
    assert json.loads(answer.body) == {"error": {"code": "queue_full", "message": "Try again later."}}
