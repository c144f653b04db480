"""Conversations over real sockets: each goes on where its beginning is cached, whichever worker takes its turns."""

from __future__ import annotations

import json
from contextlib import ExitStack

from tests.harness import Serving, StubReplica, config, model, scripts, wait_until
from tests.harness.admin import AdminClient, admin_config

CONVERSATIONS, TURNS = 3, 4
USAGE = '{"prompt_tokens":900,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":800}}'
ANSWER = scripts.chunked(
    'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    f'data: {{"choices":[],"usage":{USAGE}}}\n\n',
    "data: [DONE]\n\n",
)


def turn(conversation: int, turns: int) -> bytes:
    texts = [f"{conversation} {number} " * 700 for number in range(turns)]
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    return json.dumps({"model": "m", "messages": messages, "stream": True}).encode()


def test_a_conversation_goes_back_to_the_replica_that_has_read_it() -> None:
    with ExitStack() as stack:
        stubs = [stack.enter_context(StubReplica(name)) for name in "abcd"]
        models = {"m": model(*stubs, dialect="openai", policy="prefix_work")}
        settings = config(models, workers=2, admin=admin_config())
        gateway = stack.enter_context(Serving(settings))
        admin = stack.enter_context(AdminClient(settings, "m"))
        homes: dict[int, set[str]] = {}
        for turns in range(1, TURNS + 1):
            for conversation in range(CONVERSATIONS):
                body = turn(conversation, turns)
                answer = gateway.ask("POST", "/v1/chat/completions", body=body, script=ANSWER)
                assert answer.status == 200
                homes.setdefault(conversation, set()).add(answer.headers["steelyard-replica"])
        assert [len(replicas) for replicas in homes.values()] == [1] * CONVERSATIONS
        admin.wait_up()
        wait_until(lambda: admin.models()["m"].prefix_index_blocks > 0, "the index is not shown")
