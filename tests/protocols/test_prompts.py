"""Prompts: what of a body counts as text, as tokens, and as the same beginning."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.prompt import BLOCK_BYTES, MAX_BLOCKS, Prompt
from steelyard.protocols import BodyInfo, make_dialect
from steelyard.protocols.bodies.prompts import AUDIO_TOKENS, IMAGE_TOKENS, LOW_DETAIL_TOKENS, make_prompt

LONG = "The quick brown fox [jumps] over the lazy dog. " * 200  # 9,400 bytes
CHAT = "/v1/chat/completions"


def info(path: str, body: object, dialect: str = "openai") -> BodyInfo:
    spoken = make_dialect(dialect)
    call = spoken.call("POST", path)
    assert call is not None
    assert call.kind in spoken.prompt_kinds
    encoded = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
    return spoken.read_body(call._replace(with_prompt=True), encoded, {})


def prompt_of(path: str, body: object, dialect: str = "openai", tenant: str = "", model: str = "m") -> Prompt:
    found = info(path, body, dialect).prompt
    assert found is not None
    return make_prompt(found, model, tenant)


def chat(*texts: object, **fields: object) -> Prompt:
    messages = [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]
    return prompt_of(CHAT, {"model": "m", "messages": messages, **fields})


def shared(one: Prompt, other: Prompt) -> int:
    """Leading blocks that both have."""
    count = 0
    while count < min(len(one.blocks), len(other.blocks)) and one.blocks[count] == other.blocks[count]:
        count += 1
    return count


# ---------------------------------------------------------------------- beginnings


@given(st.lists(st.text(min_size=0, max_size=4000), min_size=1, max_size=4), st.text(max_size=3000))
def test_a_conversation_that_goes_on_begins_with_all_blocks_it_had(texts, more):
    before, after = chat(*texts), chat(*texts, more)
    assert shared(before, after) >= len(before.blocks) - 1, "its last one may have the end of the list"
    assert after.text_bytes > before.text_bytes


def test_a_block_is_the_same_only_after_the_same_beginning():
    one, other = chat("A" + LONG), chat("B" + LONG)
    assert len(one.blocks) == len(other.blocks) == one.text_bytes // BLOCK_BYTES
    assert not set(one.blocks) & set(other.blocks)


def test_short_prompts_have_no_blocks_and_long_ones_a_bounded_number():
    assert chat("Hello").blocks == ()
    assert chat("Hello").text_bytes == len('[{"role":"user","content":"Hello"}]')
    assert len(chat("x" * (MAX_BLOCKS + 10) * BLOCK_BYTES).blocks) == MAX_BLOCKS


@pytest.mark.parametrize("other", [{"cache_salt": "s"}, {"lora_path": "adapters/french"}])
def test_adapters_and_cache_salts_are_other_caches(other):
    assert not shared(chat(LONG), chat(LONG, **other))
    assert chat(LONG, **other).blocks == chat(LONG, **other).blocks


def test_models_and_tenants_are_other_caches():
    body = {"prompt": LONG}
    plain = prompt_of("/v1/completions", body)
    assert not shared(plain, prompt_of("/v1/completions", body, model="m2"))
    assert not shared(plain, prompt_of("/v1/completions", body, tenant="acme"))
    assert not shared(
        prompt_of("/v1/completions", body, tenant="a", model="bm"),
        prompt_of("/v1/completions", body, tenant="ab", model="m"),
    )


def test_tools_and_the_system_message_come_before_the_conversation():
    tools = [{"type": "function", "function": {"name": "f", "description": LONG}}]
    one = prompt_of("/v1/messages", {"messages": [{"role": "user", "content": "1"}], "system": LONG, "tools": tools})
    other = prompt_of(
        "/v1/messages", {"tools": tools, "system": LONG, "messages": [{"role": "user", "content": "2" * 4000}]}
    )
    assert shared(one, other) == len(one.blocks) >= 2 * len(LONG) // BLOCK_BYTES
    without = prompt_of("/v1/messages", {"messages": [{"role": "user", "content": "1"}], "system": LONG})
    assert not shared(one, without)


# ---------------------------------------------------------------------- media


def image(payload: str, **more: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{payload}", **more}}


def test_a_picture_counts_as_tokens_and_not_by_its_bytes():
    text = {"type": "text", "text": LONG}
    plain, seen = chat([text]), chat([text, image("A" * 100_000)])
    assert (plain.extra_tokens, seen.extra_tokens) == (0.0, IMAGE_TOKENS)
    assert seen.text_bytes - plain.text_bytes < 150
    assert shared(plain, seen) == len(plain.blocks)
    assert chat([text, image("A", detail="low"), image("B")]).extra_tokens == IMAGE_TOKENS + LOW_DETAIL_TOKENS


def test_another_picture_is_another_beginning():
    after = {"type": "text", "text": LONG}
    assert not shared(chat([image("A" * 5000), after]), chat([image("A" * 4999 + "B"), after]))
    same = chat([image("A" * 5000), after])
    assert same.blocks == chat([image("A" * 5000), after]).blocks != ()


def test_what_came_before_the_first_picture_stays_the_same_beginning():
    before = chat(LONG, LONG)
    assert shared(before, chat(LONG, LONG, [image("A" * 5000)])) >= len(before.blocks) - 1


@pytest.mark.parametrize("between", [":", ": ", ":\n", ":\t"])
def test_a_picture_after_many_brackets_is_found(between):
    text = json.dumps("[[1, 2], [3, 4]]" * 20)
    parts = '[{"type":"image_url","image_url":{"url":"data:x"}}]'
    body = f'{{"messages":[{{"content":{text}}},{{"content"{between}{parts}}}]}}'
    assert prompt_of(CHAT, body.encode()).extra_tokens == IMAGE_TOKENS


def test_sounds_and_files_count_by_their_size():
    sound = {"type": "input_audio", "input_audio": {"data": "B" * 1_000_000, "format": "wav"}}
    assert 900 < chat([sound]).extra_tokens < 1000
    short = {"type": "input_audio", "input_audio": {"data": "B" * 1000, "format": "wav"}}
    assert chat([short]).extra_tokens == AUDIO_TOKENS
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "C" * 640_000}}
    assert prompt_of("/v1/messages", {"messages": [{"role": "user", "content": [pdf]}]}).extra_tokens == 10_000.0


def test_pictures_in_the_results_of_tools_and_in_responses_are_found():
    shown = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9000}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": [shown]}
    found = prompt_of("/v1/messages", {"messages": [{"role": "user", "content": [result]}]})
    assert (found.extra_tokens, found.blocks) == (IMAGE_TOKENS, ())
    item = {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + "A" * 9000}]}
    found = prompt_of("/v1/responses", {"input": [item]})
    assert (found.extra_tokens, found.blocks) == (IMAGE_TOKENS, ())


def test_text_that_looks_like_a_picture_is_text():
    told = json.dumps([image("A" * 5000)])
    assert chat(told).extra_tokens == 0.0
    assert chat([{"type": "text", "text": told}]).extra_tokens == 0.0
    mixed = chat([{"type": "text", "text": told}, image("B" * 5000)])
    assert mixed.extra_tokens == IMAGE_TOKENS
    assert mixed.text_bytes > 5000


# ---------------------------------------------------------------------- every endpoint


@pytest.mark.parametrize(
    ("path", "body", "dialect"),
    [
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}, "openai"),
        ("/v1/completions", {"prompt": LONG}, "vllm"),
        ("/v1/completions", {"prompt": ["a", LONG]}, "vllm"),
        ("/v1/responses", {"input": LONG}, "openai"),
        ("/v1/responses", {"instructions": LONG, "input": "Hi", "text": {"format": {"type": "text"}}}, "openai"),
        ("/v1/messages", {"system": [{"type": "text", "text": LONG}], "messages": []}, "openai"),
        ("/v1/embeddings", {"input": [LONG, "b"]}, "openai"),
        ("/v1/rerank", {"query": "q", "documents": [LONG, "b"]}, "openai"),
        ("/v1/score", {"text_1": "a", "text_2": [LONG]}, "openai"),
        ("/generate", {"text": LONG, "sampling_params": {"max_new_tokens": 3}}, "sglang"),
        ("/generate", {"inputs": LONG}, "tgi"),
        ("/generate_stream", {"inputs": LONG}, "tgi"),
        ("/", {"inputs": LONG}, "tgi"),
    ],
)
def test_every_endpoint_of_engines_has_a_prompt(path, body, dialect):
    found = prompt_of(path, body, dialect)
    assert len(LONG) <= found.text_bytes < len(LONG) + 100
    assert len(found.blocks) == len(LONG) // BLOCK_BYTES


@pytest.mark.parametrize(
    ("path", "body", "dialect"),
    [
        ("/v1/completions", {"prompt": list(range(3000))}, "vllm"),
        ("/v1/embeddings", {"input": [[*range(2000)], [*range(1000)]]}, "vllm"),
        ("/generate", {"input_ids": list(range(3000))}, "sglang"),
    ],
)
def test_ids_of_tokens_count_as_tokens(path, body, dialect):
    found = prompt_of(path, body, dialect)
    assert (found.text_bytes, found.extra_tokens) == (0, 3000.0)
    assert found.blocks


def test_generate_of_sglang_and_tgi():
    body = {"text": "Hi", "image_data": ["A" * 500, "B" * 500], "sampling_params": {"max_new_tokens": 7, "n": 2}}
    said = info("/generate", {**body, "stream": True}, "sglang")
    assert (said.features, said.streams) == ((2.0, 7.0, 2.0), True)
    assert prompt_of("/generate", body, "sglang").extra_tokens == 2 * IMAGE_TOKENS
    adapters = [prompt_of("/generate", {"inputs": LONG, "parameters": {"adapter_id": id}}, "tgi") for id in "ab"]
    assert not shared(*adapters)


# ---------------------------------------------------------------------- hostile bodies


DEEP = b'{"messages":[{"role":"user","content":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"messages":"\xff"}',
        b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
        b'{"messages":[1,2,{"content":[7]}]}',
        b'{"messages":[{"content":[{"type":7}]}]}',
        b'{"messages":{"a":[]},"tools":7,"system":null}',
        b'{"model":1,"messages":[]}',
        DEEP,
        b'{"messages":[{"content":' + b'[{"type":"image","content":' * 900 + b'"a"' + b"}]" * 900 + b"}]}",
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses"])
def test_a_body_that_makes_no_sense_raises_nothing(path, body):
    said = info(path, body)
    assert all(0.0 <= feature < float("inf") for feature in said.features)
    if said.prompt is not None:
        make_prompt(said.prompt, "\ud800", "\ud800")


def test_of_two_equal_keys_the_last_counts_as_for_the_engines():
    body = b'{"messages":[{"role":"user","content":"%b"}],"messages":[{"role":"user","content":"b"}]}' % (b"a" * 9000)
    assert prompt_of(CHAT, body).text_bytes == 31


@pytest.mark.parametrize(
    "content",
    [
        '"' + "x" * 10_000_000 + '"',
        '[{"type":"text","text":"' + '\\"' * 2_000_000 + '"},{"type":"image_url","image_url":{"url":""}}]',
        "[" + ",".join(['{"type":"image_url","image_url":{"url":"a"}}'] * 100_000) + "]",
        '"' + "[:[" * 3_000_000 + '"',
    ],
    ids=["long", "quotes", "pictures", "brackets"],
)
def test_large_bodies_are_read(content):
    body = b'{"messages":[{"role":"user","content":' + content.encode() + b"}]}"
    assert len(prompt_of(CHAT, body).blocks) <= MAX_BLOCKS


# ---------------------------------------------------------------------- sessions


def test_a_session_is_named_by_the_surest_field():
    named = {"prompt_cache_key": "cache", "user": "ann", "previous_response_id": "resp_1"}
    for with_prompt in (False, True):
        openai = make_dialect("openai")
        call = openai.call("POST", "/v1/responses")
        assert call is not None
        left = dict(named)
        for name, value in named.items():
            read = openai.read_body(call._replace(with_prompt=with_prompt), json.dumps(left).encode(), {})
            assert read.key == value
            del left[name]
    assert info(CHAT, {"messages": [], "user": "ann", "n": "many"}).key == "ann", "of a body that does not fit, too"
