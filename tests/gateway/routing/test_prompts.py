"""Prompts are made for the policies that read them, and for no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from steelyard import Policy, Replica, Request
from steelyard.core.prompt import BLOCK_BYTES

from ..reading import request
from ..stage import Stage


class Reader(Policy):
    """The first candidate; keeps what it was asked with."""

    needs_prompt = True
    asked: ClassVar[list[Request]] = []

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        self.asked.append(request)
        return candidates[0]


READER = f"{{policy: '{__name__}:Reader', dialect: vllm, replicas: [{{url: 'http://a:1'}}]}}"
LONG = "All work and no play makes Jack a dull boy. " * 100


@pytest.fixture(autouse=True)
def forget() -> None:
    Reader.asked.clear()


def asks(stage: Stage, body: object, *headers: str, path: str = "/v1/chat/completions") -> Request:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    stage.client().says(request(f"POST {path}", "content-type: application/json", *headers, body=encoded))
    stage.loop.settle()
    return Reader.asked.pop()


def chat(model: str = "m", **fields: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": LONG}], **fields}


def test_a_policy_that_reads_prompts_gets_them(staged: Callable[..., Stage]) -> None:
    stage = staged(f"models: {{m: {READER}}}")
    first, second, salted = asks(stage, chat()), asks(stage, chat()), asks(stage, chat(cache_salt="x"))
    assert first.prompt is not None
    assert len(first.prompt.blocks) == len(LONG) // BLOCK_BYTES
    assert second.prompt is not None
    assert second.prompt.blocks == first.prompt.blocks
    assert salted.prompt is not None
    assert not set(salted.prompt.blocks) & set(first.prompt.blocks)
    assert first.features[0] == first.prompt.text_bytes


def test_others_pay_nothing(staged: Callable[..., Stage]) -> None:
    stage = staged(
        f"models: {{m: {READER}, o: {{dialect: vllm, policy: least_work, replicas: [{{url: 'http://b:1'}}]}}}}"
    )
    assert asks(stage, chat()).prompt is not None
    stage.client().says(request("POST /v1/chat/completions", body=json.dumps(chat("o")).encode()))
    (exchange,) = [c.exchange for c in stage.proxy.clients if c.exchange is not None and c.exchange.model == "o"]
    assert exchange.prompt is None
    assert exchange.features[0] == len(LONG), "in characters, as ever"
    stage.reload("models: {o: {dialect: vllm, policy: least_work, replicas: [{url: 'http://b:1'}]}}")
    assert not stage.proxy.router.prompt_models


def test_what_cannot_be_read_counts_by_its_size(staged: Callable[..., Stage]) -> None:
    stage = staged(f"models: {{m: {READER}}}")
    broken = asks(stage, b'{"model": "m", "messages": [{' + b"x" * 5000)
    assert broken.prompt is not None
    assert (broken.prompt.blocks, broken.prompt.text_bytes > 5000) == ((), True)
    assert asks(stage, b"", path="/v1/audio/transcriptions").prompt is None


def test_tenants_may_have_caches_of_their_own(staged: Callable[..., Stage]) -> None:
    models = f"models: {{m: {READER[:-1]}, cache_salt: tenant}}}}"
    stage = staged(f"{{tenant_header: x-tenant, trusted_proxies: ['192.0.2.0/24'], {models}}}")
    blocks = [asks(stage, chat(), f"x-tenant: {name}").prompt.blocks for name in "aab"]  # type: ignore[union-attr]
    assert blocks[0] == blocks[1]
    assert not set(blocks[1]) & set(blocks[2])


def test_a_tenant_that_is_only_claimed_opens_no_cache(staged: Callable[..., Stage]) -> None:
    models = f"models: {{m: {READER[:-1]}, cache_salt: tenant}}}}"
    stage = staged(f"{{tenant_header: x-tenant, trusted_proxies: ['192.0.2.7/32'], {models}}}")
    theirs = asks(stage, chat(), "x-tenant: a").prompt
    stage.client(peer=("198.51.100.9", 1)).says(
        request("POST /v1/chat/completions", "x-tenant: a", body=json.dumps(chat()).encode())
    )
    claimed = Reader.asked.pop().prompt
    assert theirs is not None
    assert claimed is not None
    assert not set(theirs.blocks) & set(claimed.blocks)


def test_a_session_by_header_is_surer_than_one_in_the_body(staged: Callable[..., Stage]) -> None:
    stage = staged(f"models: {{m: {READER}}}")
    assert asks(stage, chat(user="ann")).key == "ann"
    assert asks(stage, chat(user="ann"), "x-session-id: 7").key == "7"
    assert asks(stage, chat(user="ann"), "x-session-id: 7", "steelyard-session: 8").key == "8"
