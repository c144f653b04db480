"""`openai.AsyncOpenAI`: many chats at once, spread over the replicas, each with its own answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np
import openai
import pytest

from ..harness.waiting import wait_until
from .chats import KEY, answer, ask, seen, slow
from .conftest import Fleet
from .processes import Program
from .servers.tiny import embed

pytestmark = pytest.mark.xdist_group("real")

T = TypeVar("T")


def talk(gateway: Program, conversation: Callable[[openai.AsyncOpenAI], Awaitable[T]], retries: int = 0) -> T:
    async def with_client() -> T:
        async with openai.AsyncOpenAI(
            base_url=gateway.url + "/v1", api_key=KEY, max_retries=retries, timeout=60
        ) as client:
            return await conversation(client)

    return asyncio.run(with_client())


def test_fifty_chats_at_once_are_spread_and_never_mixed(gateway: Program, fleet: Fleet) -> None:
    texts = [f"question number {number}" for number in range(50)]

    async def one(client: openai.AsyncOpenAI, text: str) -> tuple[str, str, str]:
        raw = await client.chat.completions.with_raw_response.create(**ask(text, **slow(10, 12)))
        said = raw.parse().choices[0].message.content or ""
        return said, raw.headers["steelyard-replica"], raw.headers["x-served-by"]

    async def all_of_them(client: openai.AsyncOpenAI) -> list[tuple[str, str, str]]:
        return await asyncio.gather(*(one(client, text) for text in texts))

    answers = talk(gateway, all_of_them)
    assert [said for said, _, _ in answers] == [answer(text, 12) for text in texts]
    ports = {replica.name: str(replica.port) for replica in fleet.chat}
    assert all(port == ports[name] for _, name, port in answers)
    shares = Counter(name for _, name, _ in answers)
    assert set(shares) == {"chat-a", "chat-b"}
    assert min(shares.values()) >= 10


def test_forty_streams_at_once_are_never_mixed(gateway: Program) -> None:
    texts = [f"story number {number}" for number in range(40)]

    async def one(client: openai.AsyncOpenAI, text: str) -> str:
        stream = await client.chat.completions.create(**ask(text, stream=True, **slow(10, 30)))
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them(client: openai.AsyncOpenAI) -> list[str]:
        return await asyncio.gather(*(one(client, text) for text in texts))

    assert talk(gateway, all_of_them) == [answer(text, 30) for text in texts]


def test_streams_left_and_streams_read_side_by_side(gateway: Program) -> None:
    """Half of the clients leave after three words; the others must not notice."""
    texts = [f"tale number {number}" for number in range(30)]

    async def one(client: openai.AsyncOpenAI, number: int) -> str:
        said: list[str] = []
        async with await client.chat.completions.create(**ask(texts[number], stream=True, **slow(10, 30))) as stream:
            async for chunk in stream:
                said.append(chunk.choices[0].delta.content or "")
                if number % 2 and len(said) == 3:
                    break
        return "".join(said)

    async def all_of_them(client: openai.AsyncOpenAI) -> list[str]:
        return await asyncio.gather(*(one(client, number) for number in range(len(texts))))

    answers = talk(gateway, all_of_them)
    assert answers == [answer(text, 3 if number % 2 else 30) for number, text in enumerate(texts)]


def test_chats_and_embeddings_mixed(gateway: Program) -> None:
    async def both(client: openai.AsyncOpenAI, number: int) -> tuple[str | None, list[float]]:
        text = f"both {number}"
        chat = client.chat.completions.create(**ask(text))
        vector = client.embeddings.create(model="tiny-embed", input=text)
        completion, found = await asyncio.gather(chat, vector)
        return completion.choices[0].message.content, found.data[0].embedding

    async def all_of_them(client: openai.AsyncOpenAI) -> list[tuple[str | None, list[float]]]:
        return await asyncio.gather(*(both(client, number) for number in range(20)))

    for number, (said, vector) in enumerate(talk(gateway, all_of_them)):
        assert said == answer(f"both {number}")
        np.testing.assert_allclose(vector, embed(f"both {number}"), rtol=1e-6)


def test_overloaded_clients_come_back_until_all_are_served(gateway: Program) -> None:
    """`narrow` takes one request at a time and lets nobody wait; the clients' own retries bring all through."""

    async def one(client: openai.AsyncOpenAI, number: int) -> str | None:
        completion = await client.chat.completions.create(**ask(f"turn {number}", model="narrow", **slow(10, 4)))
        said: str | None = completion.choices[0].message.content
        return said

    async def all_of_them(client: openai.AsyncOpenAI) -> list[str | None]:
        return await asyncio.gather(*(one(client, number) for number in range(5)))

    assert talk(gateway, all_of_them, retries=20) == [answer(f"turn {number}", 4) for number in range(5)]


def test_a_cancelled_task_gives_its_place_back(gateway: Program, fleet: Fleet) -> None:
    async def cancel_and_ask(client: openai.AsyncOpenAI) -> str | None:
        lost = asyncio.create_task(client.chat.completions.create(**ask("lost", model="narrow", **slow(100, 50))))
        await asyncio.to_thread(wait_until, lambda: seen(fleet.chat[0])["open"], "the replica to have it")
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        completion = await client.chat.completions.create(**ask("found", model="narrow"))
        said: str | None = completion.choices[0].message.content
        return said

    assert talk(gateway, cancel_and_ask, retries=20) == answer("found")
