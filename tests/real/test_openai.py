"""The `openai` client, unchanged, through the gateway to LitServe and llm-katan."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import openai
import pytest

from ..harness.waiting import wait_until
from .chats import answer, ask, seen, slow
from .conftest import Fleet
from .servers.tiny import embed

pytestmark = pytest.mark.xdist_group("real")


def test_lists_the_models_of_the_whole_fleet(client: openai.OpenAI) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert {"tiny-chat", "tiny-embed", "echo", "scorer", "linear"} <= listed.keys()
    assert all(model.object == "model" and model.created > 0 for model in listed.values())
    assert client.models.retrieve("tiny-chat") == listed["tiny-chat"]


def test_chats(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(**ask("what is a steelyard", max_tokens=24))
    assert completion.choices[0].message.content == answer("what is a steelyard", 24)
    assert completion.model == "tiny-chat"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (4, 24)


def test_chats_with_what_is_not_ascii(client: openai.OpenAI) -> None:
    text = "Ça pèse 3 µg, 重さ, ⚖️"
    assert client.chat.completions.create(**ask(text)).choices[0].message.content == answer(text)


def test_streams_a_chat_of_many_chunks(client: openai.OpenAI) -> None:
    with client.chat.completions.create(**ask("a long story", stream=True, max_tokens=400)) as stream:
        chunks = list(stream)
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(words) == 400
    assert "".join(words) == answer("a long story", 400)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_chunk_arrives_while_the_replica_still_writes(client: openai.OpenAI, fleet: Fleet) -> None:
    def seen_writing() -> int:
        """On a machine that stands still for two seconds it has written all by then."""
        with client.chat.completions.create(**ask("slowly now", stream=True, **slow(100, 20))) as stream:
            first = next(stream)
            writing = sum(seen(replica)["open"] for replica in fleet.chat)
            rest = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert (first.choices[0].delta.content or "") + "".join(rest) == answer("slowly now", 20)
        return writing

    assert wait_until(seen_writing, "it arrives only when all is written") == 1


def test_a_stream_closed_early_is_closed_at_the_replica_too(client: openai.OpenAI, fleet: Fleet) -> None:
    before = sum(seen(replica)["left"] for replica in fleet.chat)
    with client.chat.completions.create(**ask("never mind", stream=True, **slow(100, 600))) as stream:
        next(stream)
    wait_until(
        lambda: sum(seen(replica)["left"] for replica in fleet.chat) > before, "the replica's stream to be closed"
    )
    assert client.chat.completions.create(**ask("still there")).choices[0].message.content == answer("still there")


def test_completes(client: openai.OpenAI) -> None:
    completion = client.completions.create(model="tiny-text", prompt="once upon a time", max_tokens=12)
    assert completion.choices[0].text == answer("once upon a time", 12)


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}], ids=["base64", "float"])
def test_embeds(client: openai.OpenAI, options: dict[str, Any]) -> None:
    """Without options the client asks for base64 and decodes it itself."""
    texts = ["a balance with unequal arms", "unequal arms of a balance", "the sea"]
    embeddings = client.embeddings.create(model="tiny-embed", input=texts, **options)
    vectors = [item.embedding for item in embeddings.data]
    np.testing.assert_allclose(vectors, [embed(text) for text in texts], rtol=1e-6)
    assert np.dot(vectors[0], vectors[1]) > np.dot(vectors[0], vectors[2])


def test_embeds_many_texts_at_once(client: openai.OpenAI) -> None:
    texts = [f"text number {number}" for number in range(1000)]
    embeddings = client.embeddings.create(model="tiny-embed", input=texts)
    np.testing.assert_allclose([item.embedding for item in embeddings.data], [embed(text) for text in texts], rtol=1e-6)


def test_the_answer_names_the_replica_that_gave_it(client: openai.OpenAI, fleet: Fleet) -> None:
    raw = client.chat.completions.with_raw_response.create(**ask("who are you"))
    ports = {replica.name: str(replica.port) for replica in fleet.chat}
    assert raw.headers["x-served-by"] == ports[raw.headers["steelyard-replica"]]
    assert raw.parse().choices[0].message.content == answer("who are you")


def test_request_ids_are_made_or_passed_on(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(**ask("hello"))
    second = client.chat.completions.create(**ask("hello"))
    assert first._request_id
    assert second._request_id
    assert first._request_id != second._request_id
    named = client.chat.completions.create(**ask("hello"), extra_headers={"x-request-id": "mine-1"})
    assert named._request_id == "mine-1"


def test_connections_are_kept_on_both_sides(client: openai.OpenAI) -> None:
    def kept() -> bool:
        """False: too slow, for LitServe closes after five seconds what is not used."""
        began = time.monotonic()
        raws = [client.chat.completions.with_raw_response.create(**ask("again", model="narrow")) for _ in range(8)]
        ours = {raw.http_response.extensions["network_stream"].get_extra_info("client_addr") for raw in raws}
        theirs = {raw.headers["x-peer"] for raw in raws}
        if time.monotonic() - began > 3:
            return False
        assert (len(ours), len(theirs)) == (1, 1)
        return True

    wait_until(kept, "never a quiet moment")


def test_a_chat_of_some_megabytes(client: openai.OpenAI) -> None:
    """More than the gateway keeps of a body; the client writes the model's name at its beginning."""
    picture = "data:image/png;base64," + "A" * (3 << 20)
    content = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": picture}}]
    chat: dict[str, Any] = {"model": "tiny-chat", "messages": [{"role": "user", "content": content}], "max_tokens": 4}
    completion = client.chat.completions.create(**chat)
    assert len((completion.choices[0].message.content or "").split()) == 4


def test_another_make_of_server_answers_as_well(client: openai.OpenAI) -> None:
    completion = client.chat.completions.create(**ask("are you katan", model="echo"))
    assert "User: are you katan" in (completion.choices[0].message.content or "")
    with client.chat.completions.create(**ask("are you katan", model="echo", stream=True)) as stream:
        said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert "User: are you katan" in said
