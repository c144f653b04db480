"""The routed model is the executed one: names must agree, and bodies must be clear where servers run several models."""

from collections.abc import Callable

import pytest

from ..reading import answer, read_answer, read_request, request
from ..stage import Stage

APART = """
models:
  small: {dialect: openai, replicas: [{url: 'http://a:1'}]}
  big: {dialect: openai, paths: [/big], replicas: [{url: 'http://b:1'}]}
"""
# One server runs both, and memory is counted.
TOGETHER = """
limits: {replay_bytes: 2KiB}
devices: {box: {memory: 1GiB}}
models:
  small: {memory: {weights: 1MiB}, replicas: [{url: 'http://a:1', device: box}]}
  big: {memory: {weights: 9MiB}, replicas: [{url: 'http://A.:1', device: box}]}
"""
CHAT = "POST /v1/chat/completions"
SMALL, BIG = b'{"model":"small"}', b'{"model":"big"}'


def status_and_reason(stage: Stage, data: bytes) -> tuple[int, str]:
    client = stage.client()
    client.says(data[:3000], *([data[3000:]] if len(data) > 3000 else []))
    for replica in [w for w in stage.loop.wires if w.transport.protocol in stage.proxy.active] or (
        [stage.replica()] if stage.dialling else []
    ):
        replica.says(answer(b"ok"))
    message = read_answer(client.hears())
    return message.status, "".join(message.all("steelyard-reason"))


@pytest.mark.parametrize("fleet", [APART, TOGETHER])
@pytest.mark.parametrize(
    "data",
    [
        request(CHAT, "steelyard-model: small", body=BIG),
        request("POST /v2/models/big/infer", "steelyard-model: small", body=b"{}"),
        request("GET /v2/models/big/stats", "steelyard-model: small"),
        request("POST /v1/models/big:predict", "steelyard-model: small", body=b"{}"),
        request("POST /predictions/big", "steelyard-model: small", body=b"{}"),
    ],
)
def test_names_that_contradict_each_other_are_refused(staged: Callable[..., Stage], fleet: str, data: bytes) -> None:
    assert status_and_reason(staged(fleet), data) == (400, "model_contradiction")


def test_a_configured_path_and_a_body_that_contradict_each_other(staged: Callable[..., Stage]) -> None:
    fleet = APART.replace("paths: [/big]", "paths: [/v1/embeddings]")
    stage = staged(fleet)
    assert status_and_reason(stage, request("POST /v1/embeddings", body=SMALL)) == (400, "model_contradiction")
    assert status_and_reason(stage, request("POST /v1/embeddings", body=BIG)) == (200, "")
    assert status_and_reason(stage, request("POST /v1/embeddings", body=b'{"model":"its-own-name"}')) == (200, "")


@pytest.mark.parametrize("fleet", [APART, TOGETHER])
def test_names_that_agree_are_served(staged: Callable[..., Stage], fleet: str) -> None:
    stage = staged(fleet)
    assert status_and_reason(stage, request(CHAT, "steelyard-model: small", body=SMALL)) == (200, "")
    assert status_and_reason(stage, request(CHAT, body=BIG)) == (200, "")
    assert status_and_reason(stage, request("POST /other", "steelyard-model: small", body=b"\x00\x01")) == (200, "")


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"model":"big","model":"small"}', b'{"model":"small","Model":"big"}', b'{"x":NaN,"model":"small"}'),
        *(b'\xef\xbb\xbf{"model":"small"}', b'{"a":{"model":"small"},"b":Infinity,"model":"big"}'),
        *('{"model":"big"}'.encode("utf-16"), b'{"model":"small","m\\u006fdel":"big"}'),
    ],
)
@pytest.mark.parametrize("header", [(), ("steelyard-model: small",)])
def test_a_body_that_servers_read_differently_is_refused_where_one_runs_several_models(
    staged: Callable[..., Stage], body: bytes, header: tuple[str, ...]
) -> None:
    status, reason = status_and_reason(staged(TOGETHER), request(CHAT, *header, body=body))
    if status == 404:
        assert (reason, header) == ("unknown_model", ())
    else:
        assert (status, reason) in ((400, "body_ambiguous"), (400, "model_contradiction"))


@pytest.mark.parametrize("body", [b'{"x":NaN,"model":"small"}', b'{"model":"small","model":"small"}'])
def test_where_each_model_has_its_own_server_the_replica_says_what_is_wrong(
    staged: Callable[..., Stage], body: bytes
) -> None:
    assert status_and_reason(staged(APART), request(CHAT, body=body)) == (200, "")


def test_a_large_body_is_refused_where_the_rest_of_it_could_name_another_model(staged: Callable[..., Stage]) -> None:
    large = b'{"model":"small","messages":"' + b"x" * 5000 + b'"}'
    assert status_and_reason(staged(TOGETHER), request(CHAT, body=large)) == (413, "model_beyond_buffer")
    assert status_and_reason(staged(TOGETHER), request(CHAT, "steelyard-model: small", body=large)) == (
        413,
        "model_beyond_buffer",
    )
    assert status_and_reason(staged("limits: {replay_bytes: 2KiB}\n" + APART), request(CHAT, body=large)) == (200, "")
    tensor = request("POST /v2/models/small/infer", body=b"x" * 5000)  # the path names it
    assert status_and_reason(staged(TOGETHER), tensor) == (200, "")


def test_an_upload_in_a_form_is_served_where_one_server_runs_several_models(staged: Callable[..., Stage]) -> None:
    stage = staged(TOGETHER)
    form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nbig\r\n'
    sound = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n\x00\x01\r\n'
    kind = "content-type: multipart/form-data; boundary=x"
    client = stage.client()
    client.says(request("POST /v1/audio/transcriptions", kind, body=form + sound + b"--x--\r\n"))
    replica = stage.replica()
    assert read_request(replica.hears()).body == form + sound + b"--x--\r\n"
    replica.says(answer(b"ok"))
    assert read_answer(client.hears())["steelyard-replica"].startswith("A.")
    twice = request("POST /v1/audio/transcriptions", kind, body=form + form.replace(b"big", b"small") + b"--x--\r\n")
    assert status_and_reason(stage, twice) == (400, "body_ambiguous")


def test_an_endpoint_that_no_dialect_knows_may_not_name_another_model(staged: Callable[..., Stage]) -> None:
    stage = staged(TOGETHER)
    assert status_and_reason(stage, request("POST /api/chat", "steelyard-model: small", body=BIG)) == (
        400,
        "model_contradiction",
    )
    assert status_and_reason(stage, request("POST /api/chat", "steelyard-model: big", body=BIG)) == (200, "")


@pytest.mark.parametrize("name", ["steelyard-model", "content-type"])
def test_a_header_that_is_acted_on_is_said_once(staged: Callable[..., Stage], name: str) -> None:
    stage = staged(APART)
    client = stage.client()
    client.says(request(CHAT, f"{name}: small", f"{name}: big", body=SMALL))
    message = read_answer(client.hears())
    assert (message.status, message["steelyard-reason"]) == (400, "bad_request")


def test_servers_that_are_found_later_count_too(staged: Callable[..., Stage]) -> None:
    stage = staged(APART)
    assert stage.proxy.intake.shared_models == frozenset()
    stage.reload(APART.replace("http://b:1", "http://a:1"))
    assert stage.proxy.intake.shared_models == {"small", "big"}
    stage.reload(APART)
    assert stage.proxy.intake.shared_models == frozenset()
