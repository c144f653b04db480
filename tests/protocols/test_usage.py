"""Tokens of answers, as engines say them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.prompt import TokenUsage
from steelyard.protocols.bodies.usage import AnswerTokens, read_usage


def numbers(usage: TokenUsage | None) -> tuple[int, int, int] | None:
    return (usage.prompt, usage.output, usage.cached) if usage is not None else None


def event(said: object, name: str = "") -> bytes:
    data = said if isinstance(said, str) else json.dumps(said, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def chunk(**delta: object) -> bytes:
    return event({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def streamed(*events: bytes) -> tuple[int, int, int] | None:
    """Whatever the pieces in which they come."""
    whole = b"".join(events)
    found = set()
    for size in (0, 1, 3, 700, 5000, len(whole)):
        tokens = AnswerTokens(True)
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)] if size else events
        for piece in pieces:
            tokens.feed(piece)
        found.add(numbers(tokens.usage()))
    assert len(found) == 1, found
    return found.pop()


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        ({"choices": [], "usage": {"prompt_tokens": 9, "total_tokens": 19, "completion_tokens": 10}}, (9, 10, 0)),
        (
            {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}},
            (9, 1, 8),
        ),
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None}}, (9, 1, 0)),
        (
            {"usage": {"input_tokens": 36, "input_tokens_details": {"cached_tokens": 32}, "output_tokens": 87}},
            (36, 87, 32),
        ),
        (
            {
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 5,
                    "cache_read_input_tokens": 100,
                    "output_tokens": 7,
                }
            },
            (115, 7, 100),
        ),
        ({"data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}, (5, 0, 0)),
        ({"id": "r", "usage": {"total_tokens": 56}, "results": [{"document": "x" * 9000}]}, (56, 0, 0)),
        ({"text": "a", "meta_info": {"prompt_tokens": 4, "completion_tokens": 3, "cached_tokens": 2}}, (4, 3, 2)),
        ({"generated_text": "a", "details": {"finish_reason": "length", "generated_tokens": 20}}, (0, 20, 0)),
        ({"choices": [{"text": "x" * 100_000}], "usage": {"prompt_tokens": 9, "completion_tokens": 10}}, (9, 10, 0)),
        ({"choices": [], "usage": None}, None),
        ({"choices": [{"text": '"usage":{"prompt_tokens":1}'}]}, None),
        ({"usage": {"prompt_tokens": "many"}}, None),
        ({"usage": {"prompt_tokens": 10**30}}, None),
        ({"usage": {"prompt_tokens": 1e30, "completion_tokens": -4}}, None),
        ({}, None),
    ],
)
def test_whole_answers(answer, usage):
    for separators in ((",", ":"), (", ", ": ")):
        body = json.dumps(answer, separators=separators).encode()
        assert numbers(read_usage(body)) == usage
        pieces = AnswerTokens(False)
        for at in range(0, len(body), 1000):
            pieces.feed(body[at : at + 1000])
        assert numbers(pieces.usage()) == usage


def test_a_stream_with_usage_in_its_last_event():
    last = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 30, "total_tokens": 42}}
    words = [chunk(content=" a")] * 30
    assert streamed(chunk(role="assistant", content=""), *words, chunk(), event(last), event("[DONE]")) == (12, 30, 0)


def test_a_stream_without_usage_counts_events_with_content():
    words = [chunk(content=" data")] * 500
    assert streamed(chunk(role="assistant", content=""), *words, chunk(), event("[DONE]")) == (0, 500, 0)
    thoughts = [chunk(reasoning_content="hm", content=None)] * 3
    call = {"index": 0, "function": {"name": "f", "arguments": ""}}
    calls = [chunk(tool_calls=[call]), chunk(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])]
    assert streamed(*thoughts, *calls, event("[DONE]")) == (0, 4, 0)
    assert streamed(*[event({"choices": [{"text": "x"}], "usage": None})] * 4, event("[DONE]")) == (0, 4, 0)
    assert streamed(chunk(role="assistant", content=""), event("[DONE]")) is None


def test_a_stream_of_anthropics():
    start = {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 25, "output_tokens": 1}}}
    block = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
    words = [event({"type": "content_block_delta", "delta": {"text": "Hi"}}, "content_block_delta")] * 40
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 44}}
    said = [event(start, "message_start"), event(block), *words, event(end, "message_delta"), event({"type": "stop"})]
    assert streamed(*said) == (25, 44, 0)


def test_streams_of_responses_sglang_and_tgi():
    done = {"type": "response.completed", "response": {"usage": {"input_tokens": 3, "output_tokens": 9}}}
    assert streamed(*[event({"type": "response.output_text.delta", "delta": "a"})] * 9, event(done)) == (3, 9, 0)
    sglang = [
        event({"text": "a" * n, "meta_info": {"prompt_tokens": 8, "completion_tokens": n, "cached_tokens": 6}})
        for n in range(1, 200)
    ]
    assert streamed(*sglang, event("[DONE]")) == (8, 199, 6)
    tgi = [event({"index": n, "token": {"id": n, "text": " a"}, "generated_text": None}) for n in range(300)]
    assert streamed(*tgi) == (0, 300, 0)
    last = {"token": {"id": 7}, "details": {"finish_reason": "length", "generated_tokens": 301, "input_length": 5}}
    assert streamed(*tgi, event(last)) == (5, 301, 0)


def test_json_that_comes_in_chunks_is_no_stream():
    tokens = AnswerTokens(True)
    tokens.feed(b'1f\r\n{"choices":[{"text":"data: x data: y"}]}\r\n')
    tokens.feed(b"0\r\n\r\n")
    assert tokens.usage() is None


def test_a_number_that_a_chunk_cuts_in_two_is_not_read():
    tokens = AnswerTokens(False)
    tokens.feed(b'1c\r\n{"usage":{"prompt_tokens":12\r\n1a\r\n34,"completion_tokens":10}}\r\n0\r\n\r\n')
    assert numbers(tokens.usage()) == (0, 10, 0)


def test_the_model_is_the_one_that_the_engine_names():
    tokens = AnswerTokens(True)
    tokens.feed(chunk(content="a"))
    assert tokens.model() == "m"
    assert AnswerTokens(False).model() == ""


@given(st.binary(max_size=300), st.binary(max_size=300), st.booleans())
def test_nonsense_raises_nothing(one, other, streams):
    tokens = AnswerTokens(streams)
    tokens.feed(one)
    tokens.feed(b'data: {"usage":{"output_tokens":' + other)
    found = numbers(tokens.usage())
    assert found is None or min(found) >= 0
