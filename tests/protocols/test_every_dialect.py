"""One suite over every dialect of the table: what the gateway relies on, whoever wrote the dialect."""

import json
import math
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steelyard.core.errors import OptionError
from steelyard.protocols import (
    DIALECTS,
    SERVER_DIALECTS,
    ApiCall,
    BodyInfo,
    Dialect,
    LocalReply,
    MetricsLocation,
    ProbePlan,
    ServedModel,
    ServerReadiness,
    ServerRequest,
    classify_call,
    find_dialect,
    make_dialect,
)
from steelyard.protocols.dialects.http import PlainHttp

METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", ""]
PATHS = [
    "/",
    "/predict",
    "*",
    "/v1/models",
    "/v1/models/",
    "/v1/models/org%2Fmodel",
    "/v1/models/%ff%fe",
    "/v1/models/m:predict",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/responses/resp_1",
    "/v1/messages",
    "/v1/rerank",
    "/v2/rerank",
    "/v1/tokenize",
    "/v1/chat/completions/batch",
    "/v1/audio/transcriptions",
    "/v1/images/generations",
    "/v1/files",
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/m",
    "/v2/models/m/ready",
    "/v2/models/m/versions/1/ready",
    "/v2/models/m/infer",
    "/v2/models/m/generate_stream",
    "/v2/repository/index",
    "/v2/repository/models/m/load",
    "/generate",
    "/generate_stream",
    "/predictions/m",
    "/predictions/m/1.0",
    "/explanations/m",
    "/-/healthz",
    "/readyz",
]
MODELS = ["*", "m", "org/model", "two words", "grüße", "100%", "a?b#c", "..", "\ud800", "", "x" * 5000]
FLEETS = [
    [],
    [ServedModel("m", 1, 2, 1_700_000_000)],
    [ServedModel("m", 0, 0, 0), ServedModel("org/model", 3, 3, 5)],
    [ServedModel("*", 1, 1, 0)],
    [ServedModel("*", 0, 0, 0), ServedModel("m", 1, 1, 0)],
]
DEEP = b'{"model":"m","messages":' + b"[" * 100_000
NASTY = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'{"model": 7, "n": "two", "max_tokens": [1]}',
    b'{"model":"m","temperature":NaN}',
    b'{"model":"m","max_tokens":1e999,"n":-1e999}',
    b'{"model":"m","max_tokens":' + b"9" * 5000 + b"}",
    b'{"model":"m","n":' + b"9" * 300 + b',"best_of":1e308,"prompt":[' + b"1," * 99 + b"1]}",
    b'{"model":"\\ud800","messages":[{"content":"\\ud800"}]}',
    b'{"messages":[{"content":"\xff\xfe"}]}',
    b'\xef\xbb\xbf{"model":"m"}',
    b'{"inputs":[{"shape":[1e308,1e308,1e308],"datatype":"BYTES"}]}',
    b'{"inputs":[{"shape":[-1,"x",null]}]}',
    b'{"inputs":[{"shape":[-3,-4]}],"parameters":{"sequence_id":' + b"9" * 5000 + b"}}",
    b'{"text_input":[[[]]],"max_tokens":-5}',
    b'{"inputs":[["a"],{}],"parameters":{"max_new_tokens":1e999,"best_of":-1}}',
    b'{"inputs":7,"parameters":[]}',
    b'{"size":"999999x999999","num_inference_steps":1e300,"prompt":null}',
    DEEP,
    DEEP + b"]" * 100_000 + b"}",
    b'{"a":' * 100_000,
    b'{"messages":' + b'[{"content":' * 600 + b'"x"' + b"}]" * 600 + b"}",
    b"--x\r\n" * 10_000,
]
HEADERS = [
    {},
    {b"content-type": b"application/json", b"inference-header-content-length": b"9"},
    {b"content-type": b"multipart/form-data; boundary=x", b"inference-header-content-length": b"\xb2"},
    {b"content-type": b"multipart/", b"inference-header-content-length": b"9" * 50},
    {b"content-type": b'MULTIPART/form-data; boundary="', b"inference-header-content-length": b"-1"},
]

names = pytest.mark.parametrize("name", DIALECTS)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
FIELDS = [
    "model",
    "messages",
    "content",
    "text",
    "role",
    "tools",
    "prompt",
    "input",
    "inputs",
    "n",
    "best_of",
    "max_tokens",
    "max_completion_tokens",
    "size",
    "query",
    "documents",
    "items",
    "texts",
    "text_1",
    "text_2",
    "tokens",
    "system",
    "instructions",
    "prompt_cache_key",
    "shape",
    "datatype",
    "data",
    "parameters",
    "sequence_id",
    "binary_data_size",
    "text_input",
    "max_new_tokens",
    "num_inference_steps",
    "output",
    "arguments",
    "thinking",
    "tool_calls",
]
bodies = st.binary(max_size=300) | st.recursive(
    json_values,
    lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner | st.lists(inner, max_size=3), max_size=6),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode())
paths = st.sampled_from(PATHS) | st.text(max_size=40).map(lambda text: f"/{text}")


def calls(dialect: Dialect) -> list[ApiCall]:
    found = (dialect.call(method, path) for method in METHODS for path in PATHS)
    return sorted({call for call in found if call is not None})


def check_peek(peek: BodyInfo) -> None:
    assert isinstance(peek, BodyInfo)
    assert isinstance(peek.model, str)
    assert peek.key is None or (isinstance(peek.key, str) and peek.key)
    assert len(peek.features) == 3, "of every dialect, so that a model reached through several is learned as one"
    for feature in peek.features:
        assert isinstance(feature, float)
        assert math.isfinite(feature)
        assert feature >= 0.0


def check_answer(answer: LocalReply, status: int | None = None) -> object:
    assert isinstance(answer, LocalReply)
    assert answer.status == status if status is not None else 200 <= answer.status < 600
    assert answer.content_type == "application/json"
    return json.loads(answer.body)


# ---------------------------------------------------------------------- the table


@names
def test_a_dialect_is_found_by_its_name_and_there_is_one_of_each(name):
    dialect = make_dialect(name)
    assert type(dialect) is find_dialect(name)
    assert dialect.name == name
    assert make_dialect(name) is dialect


def test_an_unknown_name_is_refused_with_those_that_there_are():
    known = "openai, vllm, sglang, tgi, oip, triton, torchserve, rayserve, bentoml, http"
    meant = r"\(did you mean `openai`\?\)"
    with pytest.raises(OptionError, match=f"no dialect 'opneai' {meant}; there are {known}, or name your own"):
        find_dialect("opneai")
    with pytest.raises(OptionError, match="no dialect 'opneai'"):
        make_dialect("opneai")


class Own(PlainHttp):
    name = "own"


class NoDialect:
    pass


class Unfinished(Dialect):
    pass


def test_a_users_own_dialect_is_named_by_its_class():
    assert find_dialect(f"{__name__}:Own") is Own


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (":Own", "write package.module:Class"),
        ("nowhere:", "write package.module:Class"),
        ("no.such.module:Own", "cannot import 'no.such.module'"),
        (f"{__name__}:Nothing", "has no 'Nothing'"),
        (f"{__name__}:NoDialect", "NoDialect is not a subclass"),
        (f"{__name__}:Unfinished", "Unfinished does not define call"),
        (f"{__name__}:METHODS", "METHODS is not a subclass"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_by_name(name, problem):
    with pytest.raises(OptionError, match=problem):
        find_dialect(name)


def test_a_new_dialect_is_one_line_and_is_asked_in_its_turn(monkeypatch):
    class Echo(PlainHttp):
        name = "echo"

        def call(self, method, path):
            return ApiCall("echo") if path == "/echo" else None

    monkeypatch.setattr(f"{__name__}.Own", Echo)
    for name in list(DIALECTS):
        monkeypatch.setitem(DIALECTS, name, DIALECTS[name])
    monkeypatch.delitem(DIALECTS, "http")
    monkeypatch.setitem(DIALECTS, "echo", f"{__name__}:Own")
    monkeypatch.setitem(DIALECTS, "http", "steelyard.protocols.dialects.http:PlainHttp")
    try:
        dialect, call = classify_call("GET", "/echo")
        assert (dialect.name, call) == ("echo", ApiCall("echo"))
        assert classify_call("GET", "/other")[0].name == "http"
    finally:
        make_dialect.cache_clear()


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/v1/chat/completions", "openai"),
        ("GET", "/v1/models", "openai"),
        ("GET", "/v1/models/org/model", "openai"),
        ("POST", "/v1/files", "openai"),
        ("POST", "/v2/rerank", "openai"),
        ("POST", "/v2/embed", "openai"),
        ("POST", "/v1/models/m:predict", "http"),
        ("POST", "/v1/predict", "http"),
        ("POST", "/v1/filesystem", "http"),
        ("POST", "/v1/chat/completionsx", "http"),
        ("GET", "/v1", "http"),
        ("POST", "/tokenize", "http"),
        ("GET", "/v2", "oip"),
        ("GET", "/v2/", "oip"),
        ("POST", "/v2/models/m/infer", "oip"),
        ("GET", "/v2/whatever", "oip"),
        ("GET", "/v2x", "http"),
        ("GET", "/v22/models", "http"),
        ("GET", "/", "http"),
        ("OPTIONS", "*", "http"),
        ("POST", "/predict/v1/chat/completions", "http"),
        ("POST", "/generate", "http"),
        ("POST", "/predictions/m", "http"),
    ],
)
def test_who_claims_what(method, path, name):
    assert classify_call(method, path)[0].name == name


@given(st.sampled_from(METHODS) | st.text(max_size=8), paths)
def test_everything_is_claimed_by_somebody_and_always_by_the_same(method, path):
    dialect, call = classify_call(method, path)
    assert isinstance(call, ApiCall)
    assert classify_call(method, path) == (dialect, call)
    assert dialect.name not in SERVER_DIALECTS, "no path tells one server from another"


# ---------------------------------------------------------------------- every dialect


@names
@given(method=st.sampled_from(METHODS), path=paths)
def test_call_is_pure_and_tells_only_what_the_types_say(name, method, path):
    call = make_dialect(name).call(method, path)
    assert call == find_dialect(name)().call(method, path)
    if call is not None:
        assert call.kind
        assert isinstance(call.model, str)
        assert {type(call.reads_body), type(call.idempotent), type(call.local)} == {bool}
        assert not (call.local and method not in ("GET", "HEAD")), "only what asks and changes nothing is answered"


@names
def test_kinds_do_not_grow_with_what_clients_write(name):
    dialect, rng = make_dialect(name), Random(1)
    found = set()
    for _ in range(5000):
        pieces = rng.choice(PATHS).split("/")
        pieces[rng.randrange(len(pieces))] = f"{rng.getrandbits(40):x}"
        found.add(dialect.call(rng.choice([*METHODS, f"{rng.getrandbits(40):X}"]), "/".join(pieces)))
    assert len({call.kind for call in found if call is not None}) <= 64


@names
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_what_is_safe_may_run_twice_and_no_unknown_method_may(name, method):
    dialect = make_dialect(name)
    for path in PATHS:
        call = dialect.call(method, path)
        assert call is None or call.idempotent
        other = dialect.call("PATCH", path)
        assert other is None or not other.idempotent


@names
@pytest.mark.parametrize("body", NASTY, ids=lambda body: repr(body[:30]))
def test_nonsense_is_looked_at_calmly(name, body):
    dialect = make_dialect(name)
    for call in calls(dialect):
        for headers in HEADERS:
            check_peek(dialect.read_body(call, body, headers))
            check_peek(dialect.estimate_body(call, len(body), body, headers))


@names
@given(data=st.data(), body=bodies)
def test_peek_never_raises(name, data, body):
    dialect = make_dialect(name)
    call = data.draw(st.sampled_from(calls(dialect)))
    headers = data.draw(st.sampled_from(HEADERS))
    peek = dialect.read_body(call, body, headers)
    check_peek(peek)
    assert dialect.read_body(call, body, headers) == peek


@names
@given(data=st.data(), content_type=st.binary(max_size=60), length=st.binary(max_size=12), body=bodies)
def test_no_header_makes_it_raise(name, data, content_type, length, body):
    dialect = make_dialect(name)
    call = data.draw(st.sampled_from(calls(dialect)))
    for kind in (content_type, b"multipart/form-data; boundary=" + content_type):
        headers = {b"content-type": kind, b"inference-header-content-length": length}
        check_peek(dialect.read_body(call, body, headers))
        check_peek(dialect.estimate_body(call, 10**30, body, headers))


@names
@given(length=st.integers(min_value=0))
def test_a_guess_is_made_of_any_length(name, length):
    dialect = make_dialect(name)
    for call in calls(dialect):
        check_peek(dialect.estimate_body(call, min(length, 10**300)))


@names
@given(status=st.integers(400, 599), code=st.text(max_size=20), sentence=st.text())
@example(404, "unknown_model", "No such model.")
@example(503, "no_replica", '\udcff \ud800 \x00 "quoted" \\ \u2028')
def test_errors_are_json_with_the_sentence_in_it(name, status, code, sentence):
    body = check_answer(make_dialect(name).error(status, code, sentence), status)
    assert isinstance(body, dict)
    error = body["error"]
    assert (error if isinstance(error, str) else error["message"]) == sentence


@names
@pytest.mark.parametrize("models", FLEETS, ids=str)
def test_local_answers_are_json_and_only_for_local_calls(name, models):
    dialect = make_dialect(name)
    for path in PATHS:
        for method in METHODS:
            call = dialect.call(method, path)
            answer = dialect.local_reply(call, path, models) if call is not None else None
            if answer is not None:
                assert call is not None
                assert call.local
                check_answer(answer)


@names
def test_headers_that_a_dialect_wants_are_lower_case(name):
    for header in make_dialect(name).wanted_headers:
        assert isinstance(header, bytes)
        assert header == header.lower()


# ---------------------------------------------------------------------- is it ready?


def asked(questions: ProbePlan) -> list[ServerRequest]:
    """All that may be asked."""
    found = [*questions.ready, *([questions.live] if questions.live is not None else [])]
    for question in found:
        if question.fallback is not None:
            found.append(question.fallback)
        assert len(found) < 10, "there must be an end to it"
    return found


ANSWERS = [
    *NASTY,
    b"ok",
    b'{"error":"Not Found"}',
    b'{"error":7,"message":7,"ready":"no","data":7}',
    b'{"data":[{"id":7}]}',
    b'{"data":[null]}',
    b'[{"workers":7}]',
    b'[{"workers":[{"status":7}]}]',
    b"[[]]",
    b"\xff" * 100,
]


@names
@pytest.mark.parametrize("model", MODELS, ids=ascii)
def test_what_is_asked_can_be_sent(name, model):
    dialect = make_dialect(name)
    questions = dialect.probe_plan(model)
    assert questions == dialect.probe_plan(model)
    assert questions.ready, "who asks nothing knows nothing"
    for question in asked(questions):
        assert question.path.startswith("/")
        assert question.path.isascii()
        assert question.path.isprintable()
        assert not set(question.path) & set(" ?#\\")
        assert question.method in ("GET", "POST")
        assert isinstance(question.body, bytes)
        assert 0 <= question.port < 65536


@names
def test_every_model_is_asked_for_by_its_own_name_or_all_alike(name):
    found = {model: make_dialect(name).probe_plan(model) for model in MODELS if model not in ("*", "\ud800")}
    assert len(set(found.values())) in (1, len(found))


@names
@pytest.mark.parametrize("status", [*range(100, 600, 7), 200, 204, 400, 404, 405, 501, 503])
def test_every_answer_is_judged(name, status):
    dialect = make_dialect(name)
    for model in MODELS:
        for question in asked(dialect.probe_plan(model)):
            for body in ANSWERS:
                readiness = dialect.readiness(question, status, body, model)
                assert isinstance(readiness, ServerReadiness)
                assert readiness is not ServerReadiness.READY or 200 <= status < 300


@names
@given(data=st.data(), status=st.integers(0, 999), body=bodies, model=st.text(max_size=10))
def test_no_answer_makes_the_judge_raise(name, data, status, body, model):
    dialect = make_dialect(name)
    question = data.draw(st.sampled_from(asked(dialect.probe_plan(model))))
    readiness = dialect.readiness(question, status, body, model)
    assert isinstance(readiness, ServerReadiness)
    assert dialect.readiness(question, status, body, model) is readiness
    assert isinstance(dialect.explain(question, status, body, model), str)


@names
def test_where_metrics_are_told(name):
    dialect = make_dialect(name)
    assert isinstance(dialect.sends_orca, bool)
    if dialect.metrics is not None:
        assert isinstance(dialect.metrics, MetricsLocation)
        assert dialect.metrics.path.startswith("/")
        assert 0 <= dialect.metrics.port < 65536


def test_a_users_own_dialect_need_not_know_of_probes():
    own = Own()
    assert own.probe_plan("m") == own.probe_plan("*") == ProbePlan((ServerRequest("/health"),))
    assert own.readiness(ServerRequest("/health"), 200, b"", "m") is ServerReadiness.READY
    assert own.readiness(ServerRequest("/health"), 503, b"", "m") is ServerReadiness.LOADING
    assert own.readiness(ServerRequest("/health"), 404, b"", "m") is ServerReadiness.NOT_FOUND
    assert (own.metrics, own.sends_orca) == (None, False)
