"""The openai dialect, with bodies as clients send them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.protocols import ApiCall, BodyInfo, ServedModel, make_dialect
from steelyard.protocols.bodies.text import DEFAULT_OUTPUT_TOKENS, MEDIA_CHARS
from steelyard.protocols.dialects.openai import ENDPOINTS, MAX_UNREAD_CHARS

openai = make_dialect("openai")
FLEET = [
    ServedModel("small", 0, 1, 1_700_000_000),
    ServedModel("meta-llama/Llama-3.1-8B-Instruct", 2, 2, 1_700_000_001),
]
# As openai-python 3.49 sent it, captured from the wire.
FORM = (
    b'--0223f02d\r\nContent-Disposition: form-data; name="model"\r\n\r\nopenai/whisper-large-v3\r\n'
    b'--0223f02d\r\nContent-Disposition: form-data; name="language"\r\n\r\nde\r\n'
    b'--0223f02d\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/x-wav\r\n\r\n'
    b"RIFF\x00\x01\x02\r\n--\r\n\r\n--0223f02d--\r\n"
)
FORM_HEADERS = {b"content-type": b"multipart/form-data; boundary=0223f02d"}


def peek(path: str, body: object, headers: dict[bytes, bytes] | None = None) -> BodyInfo:
    call = openai.call("POST", path)
    assert call is not None
    assert call.reads_body
    return openai.read_body(call, body if isinstance(body, bytes) else json.dumps(body).encode(), headers or {})


def chat(**fields: object) -> BodyInfo:
    return peek("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields})


def says(content: object, **fields: object) -> float:
    return chat(messages=[{"role": "user", "content": content, **fields}]).features[0]


# ---------------------------------------------------------------------- paths


@pytest.mark.parametrize(("path", "kind"), ENDPOINTS.items())
def test_endpoints_are_recognised_with_a_kind(path, kind):
    again = kind not in ("responses", "videos")
    assert openai.call("POST", path) == ApiCall(kind, reads_body=True, idempotent=again)
    assert openai.call("POST", f"{path}/") == openai.call("POST", path)


@pytest.mark.parametrize(
    ("method", "path", "again"),
    [
        ("GET", "/v1/files", True),
        ("POST", "/v1/files", False),
        ("DELETE", "/v1/files/file-1", True),
        ("POST", "/v1/batches", False),
        ("POST", "/v1/fine_tuning/jobs", False),
        ("GET", "/v1/responses/resp_1", True),
        ("POST", "/v1/responses/resp_1/cancel", False),
        ("GET", "/v1/chat/completions", True),
        ("OPTIONS", "/v1/chat/completions", True),
        ("GET", "/v1/videos/video_1/content", True),
        ("POST", "/v1/load_lora_adapter", False),
    ],
)
def test_what_is_kept_on_a_replica_is_carried_and_not_repeated(method, path, again):
    assert openai.call(method, path) == ApiCall("other", idempotent=again)


# ---------------------------------------------------------------------- conversations


def test_a_chat_as_openai_python_sends_it():
    body = (
        b'{"model":"m/x","messages":[{"role":"user","content":"Gr\xc3\xbc\xc3\x9f Gott \xe4\xbd\xa0\xe5\xa5\xbd"}],'
        b'"max_completion_tokens":5,"prompt_cache_key":"k"}'
    )
    assert peek("/v1/chat/completions", body) == BodyInfo("m/x", (12.0, 5.0, 1.0), "k")


def test_characters_count_however_they_are_escaped():
    message = {"model": "m", "messages": [{"role": "user", "content": '天地\n"x"'}]}
    plain, escaped = (json.dumps(message, ensure_ascii=ascii_only).encode() for ascii_only in (False, True))
    assert plain != escaped
    assert peek("/v1/chat/completions", plain) == peek("/v1/chat/completions", escaped)
    assert peek("/v1/chat/completions", plain).features[0] == 6.0


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]))))
def test_the_size_is_the_sum_of_all_messages(texts):
    messages = [{"role": "user", "content": text} for text in texts]
    assert chat(messages=messages).features[0] == sum(map(len, texts))


def test_limits_by_any_of_their_names():
    assert chat().features == (5.0, DEFAULT_OUTPUT_TOKENS, 1.0)
    assert chat(max_tokens=None, n=None).features == (5.0, DEFAULT_OUTPUT_TOKENS, 1.0)
    assert chat(max_tokens=7).features[1] == 7.0
    assert chat(max_tokens=0).features[1] == 0.0
    assert chat(max_tokens=-1).features[1] == DEFAULT_OUTPUT_TOKENS, "llama.cpp's way to say: no limit"
    assert chat(max_tokens=7, max_completion_tokens=9, n=3).features[1:] == (9.0, 3.0)


def test_pictures_and_sounds_do_not_count_by_their_bytes():
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'A' * 100_000}"}}
    sound = {"type": "input_audio", "input_audio": {"data": "B" * 100_000, "format": "wav"}}
    text = {"type": "text", "text": "What is this?"}
    assert says([text]) == 13.0
    assert says([text, picture]) == 13.0 + MEDIA_CHARS
    assert says([text, picture, sound]) == 13.0 + 2 * MEDIA_CHARS
    assert says(["What is ", text]) == 21.0


def test_tools_and_their_calls_count():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    assert chat(tools=tools).features[0] == 5.0 + len(json.dumps(tools))
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert says(None, tool_calls=calls) == len(json.dumps(calls))
    assert says(None) == 0.0


def test_responses():
    assert peek("/v1/responses", {"model": "r", "input": "hi", "max_output_tokens": 7}).features == (2.0, 7.0, 1.0)
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "abc"}, {"type": "input_image", "image_url": "x"}]},
        {"type": "function_call", "name": "f", "arguments": '{"a":1}', "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "12"},
    ]
    found = peek("/v1/responses", {"model": "r", "input": items, "instructions": "Be brief."})
    assert found == BodyInfo("r", (3.0 + MEDIA_CHARS + 7.0 + 2.0 + 9.0, DEFAULT_OUTPUT_TOKENS, 1.0))


def test_messages_of_anthropic():
    body = {
        "model": "claude",
        "max_tokens": 64,
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hmm"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": "four"}]}]},
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "A" * 9999}}]},
        ],
    }
    size = 8 + 2 + 3 + len('{"a": 1}') + 4 + MEDIA_CHARS
    assert peek("/v1/messages", body) == BodyInfo("claude", (size, 64.0, 1.0))


# ---------------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("prompt", "size", "pieces"),
    [
        ("once upon", 9.0, 1),
        (["once", "upon a"], 10.0, 2),
        ([11, 12, 13], 3.0, 1),
        ([[11, 12, 13], [14]], 4.0, 2),
        ([], 0.0, 1),
        ([[]], 0.0, 1),
        (None, 0.0, 1),
        ("", 0.0, 1),
        (["a, b", "[c"], 6.0, 2),
    ],
)
def test_prompts_in_all_their_shapes(prompt, size, pieces):
    assert peek("/v1/completions", {"model": "m", "prompt": prompt}).features == (size, 16.0, pieces)
    assert peek("/v1/embeddings", {"model": "m", "input": prompt}).features == (size, 0.0, pieces)
    indented = json.dumps({"model": "m", "prompt": prompt}, indent=4).encode()
    assert peek("/v1/completions", indented).features == (size, 16.0, pieces)


def test_completions_ask_for_as_many_as_they_say():
    body = {"model": "m", "prompt": ["a", "b"], "max_tokens": 64, "n": 2, "prompt_cache_key": "s"}
    assert peek("/v1/completions", body) == BodyInfo("m", (2.0, 64.0, 4.0), "s")
    assert peek("/v1/completions", body | {"best_of": 5}).features[2] == 10.0


def test_embeddings_as_openai_python_sends_them():
    assert peek("/v1/embeddings", b'{"model":"e","input":["a","b"],"encoding_format":"base64"}') == BodyInfo(
        "e", (2.0, 0.0, 2.0)
    )


def test_the_query_is_read_with_each_document():
    body = {"model": "r", "query": "what?", "documents": ["one", "three"], "top_n": 1}
    for path in ("/v1/rerank", "/v2/rerank"):
        assert peek(path, body) == BodyInfo("r", (3 + 5 + 2 * 5.0, 0.0, 2.0))
    assert peek("/v1/rerank", body | {"documents": [{"text": "one"}, {"text": "three"}]}).features[0] == 18.0
    assert peek("/v1/score", {"model": "r", "text_1": "a", "text_2": ["bb", "ccc"]}).features == (6.0, 0.0, 2.0)


@pytest.mark.parametrize(
    ("path", "body", "features"),
    [
        ("/v1/tokenize", {"prompt": "abc"}, (3.0, 0.0, 1.0)),
        ("/v1/tokenize", {"messages": [{"role": "user", "content": "abc"}] * 2}, (6.0, 0.0, 1.0)),
        ("/v1/detokenize", {"tokens": [1, 2, 3]}, (3.0, 0.0, 1.0)),
        ("/v1/audio/speech", {"input": "Hello", "voice": "a"}, (5.0, 0.0, 1.0)),
        ("/v1/images/generations", {"prompt": "a cat", "n": 2, "size": "512x512"}, (5.0, 1024 * 30.0, 2.0)),
        ("/v1/images/generations", {"prompt": "a cat", "size": "auto"}, (5.0, 4096 * 30.0, 1.0)),
        ("/v1/images/generations", {"prompt": "a", "num_inference_steps": 4}, (1.0, 4096 * 4.0, 1.0)),
        ("/v2/embed", {"texts": ["a", "bc"]}, (3.0, 0.0, 2.0)),
    ],
)
def test_other_endpoints(path, body, features):
    assert peek(path, {"model": "m", **body}) == BodyInfo("m", features)


def test_a_batch_of_conversations():
    conversation = [{"role": "user", "content": "abc"}]
    found = peek("/v1/chat/completions/batch", {"model": "m", "messages": [conversation] * 3, "max_tokens": 9})
    assert found.model == "m"
    assert found.features[1:] == (9.0, 3.0)
    assert found.features[0] >= 9.0


# ---------------------------------------------------------------------- forms


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations", "/v1/images/edits"])
def test_a_form_names_the_model_in_a_field(path):
    assert peek(path, FORM, FORM_HEADERS) == BodyInfo("openai/whisper-large-v3", (float(len(FORM)), 0.0, 1.0))


def test_the_head_of_a_large_form_is_enough():
    call = openai.call("POST", "/v1/audio/transcriptions")
    assert openai.estimate_body(call, 5_000_000, FORM[:200], FORM_HEADERS) == BodyInfo(
        "openai/whisper-large-v3", (5_000_000.0, 0.0, 1.0), is_certain=False
    )
    assert openai.estimate_body(call, 5_000_000, FORM[:70], FORM_HEADERS).model == "", "cut in the middle of the name"


def test_the_head_of_a_large_conversation_is_enough():
    call = openai.call("POST", "/v1/chat/completions")
    head = b'{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:'
    assert openai.estimate_body(call, 5_000_000, head) == BodyInfo(
        "m", (MAX_UNREAD_CHARS, DEFAULT_OUTPUT_TOKENS, 1.0), streams=True, is_certain=False
    )
    assert openai.estimate_body(call, 5_000_000) == BodyInfo(
        "", (MAX_UNREAD_CHARS, DEFAULT_OUTPUT_TOKENS, 1.0), streams=True
    )


# ---------------------------------------------------------------------- bodies that surprise


@pytest.mark.parametrize(
    ("odd", "features"),
    [
        ({"max_tokens": "256"}, (5.0, 256.0, 1.0)),
        ({"max_tokens": "many"}, (5.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
        ({"max_tokens": True}, (5.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
        ({"max_tokens": [1], "max_output_tokens": 5}, (5.0, 5.0, 1.0)),
        ({"n": "2"}, (5.0, DEFAULT_OUTPUT_TOKENS, 2.0)),
        ({"n": {}}, (5.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
        ({"messages": "hello"}, (5.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
        ({"messages": {"role": "user"}}, (16.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
        ({"messages": ["a", 1, {"content": 5}]}, (18.0, DEFAULT_OUTPUT_TOKENS, 1.0)),
    ],
)
def test_a_wrong_type_in_one_field_spoils_no_other(odd, features):
    assert chat(prompt_cache_key="k", **odd) == BodyInfo("m", features, "k")


def test_names_and_keys_of_a_wrong_type_are_none():
    assert chat(model=7, prompt_cache_key=8) == BodyInfo("", (5.0, DEFAULT_OUTPUT_TOKENS, 1.0))
    assert chat(model=None, prompt_cache_key="") == BodyInfo("", (5.0, DEFAULT_OUTPUT_TOKENS, 1.0))
    assert chat(prompt_cache_key=8).model == "m"


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "org/m", "temperature": NaN}',
        b'{"model" :\n"org\\/m", "messages": [{"content": "cut of',
        b'{"messages": [{"content": "say \\"model\\": \\"other\\""}, NaN], "model": "org/m"}',
        b'{"model":"org/m","messages":' + b"[" * 5000,
        b'{"model":"org/m","messages":[{"role":"user","content":"\\ud83d"}]}',
        b'\xef\xbb\xbf{"model":"org/m"}',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_the_model_is_found_in_what_is_hardly_json(body):
    assert peek("/v1/chat/completions", body).model == "org/m"
    assert peek("/v1/completions", body).model == "org/m"


def test_the_last_of_two_names_counts_as_it_does_for_servers():
    assert peek("/v1/chat/completions", b'{"model":"a","model":"b"}').model == "b"
    assert peek("/v1/chat/completions", b'{"model":"a","n":"1","model":"b"}').model == "b"


def test_a_name_further_inside_is_not_the_models():
    body = {"metadata": {"model": "inner"}, "max_tokens": "5", "model": "outer"}
    assert peek("/v1/chat/completions", body).model == "outer"
    assert peek("/v1/chat/completions", {"metadata": {"model": "inner"}}).model == ""


# ---------------------------------------------------------------------- what the gateway answers


def ask(path: str, models: list[ServedModel]) -> tuple[int, dict[str, object]] | None:
    call = openai.call("GET", path)
    assert call is not None
    assert call.local
    answer = openai.local_reply(call, path, models)
    return None if answer is None else (answer.status, json.loads(answer.body))


def test_the_list_has_every_model_of_the_fleet():
    assert ask("/v1/models", FLEET) == (
        200,
        {
            "object": "list",
            "data": [
                {"id": "small", "object": "model", "created": 1_700_000_000, "owned_by": "steelyard"},
                {
                    "id": "meta-llama/Llama-3.1-8B-Instruct",
                    "object": "model",
                    "created": 1_700_000_001,
                    "owned_by": "steelyard",
                },
            ],
        },
    )
    assert ask("/v1/models", []) == (200, {"object": "list", "data": []})


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama%2FLlama-3.1-8B-Instruct"])
def test_one_model_with_its_slash_escaped_or_not(name):
    status, body = ask(f"/v1/models/{name}", FLEET)
    assert (status, body["id"]) == (200, "meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize("written", ["gr%C3%BC%C3%9Fe", "grÃ¼Ã\x9fe"])
def test_a_name_that_is_not_ascii_escaped_or_as_bytes(written):
    status, body = ask(f"/v1/models/{written}", [ServedModel("grüße", 1, 1, 0)])
    assert (status, body["id"]) == (200, "grüße")


def test_an_unknown_model_in_openais_words():
    assert ask("/v1/models/gpt-5", FLEET) == (
        404,
        {
            "error": {
                "message": "The model 'gpt-5' does not exist.",
                "type": "invalid_request_error",
                "param": "model",
                "code": "model_not_found",
            }
        },
    )


def test_with_a_model_for_every_name_a_replica_answers():
    anything = [*FLEET, ServedModel("*", 1, 1, 0)]
    assert ask("/v1/models", anything) is None
    assert ask("/v1/models/small", anything) is None
    assert ask("/v1/models/gpt-5", anything) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
    ],
)
def test_the_type_of_an_error_follows_its_status(status, kind):
    answer = openai.error(status, "no_replica", "Try again later.")
    assert answer.status == status
    assert json.loads(answer.body) == {
        "error": {"message": "Try again later.", "type": kind, "param": None, "code": "no_replica"}
    }
