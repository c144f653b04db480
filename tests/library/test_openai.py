"""The real `openai` client over replicas of the library, by `http_client=`."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from typing import Any

import openai
import pytest

from steelyard import LoadBalancer, RetryOptions

from ..harness.replicas.scripts import chunked, endless, fails, plain
from ..harness.replicas.stub import Script
from ..harness.waiting import WAIT_TIMEOUT_SECONDS
from .conftest import Stubs

CHAT: Any = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def answer() -> Script:
    message = {"role": "assistant", "content": "hi"}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    return plain(json.dumps(body), headers={"content-type": "application/json"})


def stream(*words: str) -> Script:
    events = []
    for word in words:
        choices = [{"index": 0, "delta": {"content": word}}]
        body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        events.append(f"data: {json.dumps(body)}\n\n")
    return chunked(*events, "data: [DONE]\n\n", headers={"content-type": "text/event-stream"})


@pytest.fixture(params=["httpx", "httpx2"])
def http(request: pytest.FixtureRequest) -> Any:
    return import_module(request.param)


def sync_client(http: Any, lb: LoadBalancer) -> openai.OpenAI:
    transport = import_module(f"steelyard.integrations.{http.__name__}").Transport(lb)
    web = http.Client(transport=transport, timeout=WAIT_TIMEOUT_SECONDS)
    return openai.OpenAI(api_key="x", base_url="http://model/v1", http_client=web, max_retries=0)


def async_client(http: Any, lb: LoadBalancer) -> openai.AsyncOpenAI:
    transport = import_module(f"steelyard.integrations.{http.__name__}").AsyncTransport(lb)
    web = http.AsyncClient(transport=transport, timeout=WAIT_TIMEOUT_SECONDS)
    return openai.AsyncOpenAI(api_key="x", base_url="http://model/v1", http_client=web, max_retries=0)


def samples(lb: LoadBalancer) -> int:
    return sum(replica.samples for replica in lb.stats().replicas.values())


def test_openai_chats_over_several_replicas_one_of_them_dead(http: Any, stubs: Stubs, dead: str) -> None:
    for stub in stubs:
        stub.answer_all(answer())
    lb = LoadBalancer(
        [dead, *(stub.url for stub in stubs)],
        policy="round_robin",
        outlier_detection=False,
        retry=RetryOptions(initial_tokens=50.0),
    )
    with sync_client(http, lb) as client:
        for _ in range(6):
            assert client.chat.completions.create(**CHAT).choices[0].message.content == "hi"

    async def main() -> None:
        async with async_client(http, lb) as client:
            made = await asyncio.gather(*(client.chat.completions.create(**CHAT) for _ in range(6)))
            assert {one.choices[0].message.content for one in made} == {"hi"}

    asyncio.run(main())
    sent = {id: replica.sent for id, replica in lb.stats().replicas.items()}
    assert sent[dead] == lb.stats().retries > 0
    assert min(sent.values()) > 0
    assert set(lb.load.values()) == {0}


def test_openai_streams_and_gives_the_slot_back_at_the_end(http: Any, stubs: Stubs) -> None:
    for stub in stubs:
        stub.answer_all(stream("a", "b", "c"))
    lb = LoadBalancer([stub.url for stub in stubs], concurrency=1)
    with sync_client(http, lb) as client:
        for _ in range(3):
            chunks = client.chat.completions.create(**CHAT, stream=True)
            assert sum(lb.load.values()) == 1
            assert [chunk.choices[0].delta.content for chunk in chunks] == ["a", "b", "c"]
            assert set(lb.load.values()) == {0}
    assert samples(lb) == 3  # read to the end, so learned from: the client reads no further than [DONE]

    async def main() -> None:
        async with async_client(http, lb) as client:
            for _ in range(3):
                chunks = await client.chat.completions.create(**CHAT, stream=True)
                assert sum(lb.load.values()) == 1
                assert [chunk.choices[0].delta.content async for chunk in chunks] == ["a", "b", "c"]
                assert set(lb.load.values()) == {0}

    asyncio.run(main())
    assert samples(lb) == 6


def test_openai_leaves_a_stream_and_the_slot_is_free(http: Any, stubs: Stubs) -> None:
    for stub in stubs:
        stub.answer_all(endless())
    lb = LoadBalancer([stub.url for stub in stubs])
    with sync_client(http, lb) as client:
        chunks = client.chat.completions.create(**CHAT, stream=True)
        assert sum(lb.load.values()) == 1
        chunks.close()
        assert set(lb.load.values()) == {0}
    assert sum(replica.failed for replica in lb.stats().replicas.values()) == 0


def test_openai_raises_its_own_errors(http: Any, stubs: Stubs, dead: str) -> None:
    stubs[0].answer_all(fails(500))
    lb = LoadBalancer([stubs[0].url], outlier_detection=False)
    with sync_client(http, lb) as client, pytest.raises(openai.InternalServerError):
        client.chat.completions.create(**CHAT)
    assert lb.stats().replicas[stubs[0].url].failed == 1
    lb = LoadBalancer([dead], concurrency=1, max_queue=0)
    with sync_client(http, lb) as client:
        with pytest.raises(openai.APIConnectionError):
            client.chat.completions.create(**CHAT)
        lb.route_request()
        with pytest.raises(openai.APIConnectionError) as full:
            client.chat.completions.create(**CHAT)
    assert getattr(full.value.__cause__, "reason", None) == "queue_full"
