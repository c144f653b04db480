"""What the `openai` client makes of refusals, overload, deadlines and its own timeouts, through the gateway."""

from __future__ import annotations

import threading

import openai
import pytest

from ..harness.waiting import wait_until
from .chats import answer, ask, slow

pytestmark = pytest.mark.xdist_group("real")


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as problem:
        client.chat.completions.create(**ask("hello", model="no-such-model"))
    assert problem.value.response.headers["steelyard-reason"] == "unknown_model"
    assert isinstance(problem.value.body, dict)
    assert problem.value.body["message"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="no-such-model", input="hello")


def test_what_the_replica_refuses_comes_back_as_it_said_it(client: openai.OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as problem:
        client.chat.completions.create(model="tiny-chat", messages="no list")  # type: ignore[arg-type]
    assert "messages" in problem.value.response.text
    assert problem.value.response.headers["steelyard-replica"] in ("chat-a", "chat-b")


def test_a_replica_that_says_slow_down_is_heard(client: openai.OpenAI) -> None:
    client.chat.completions.create(**ask("the one it allows", model="limited"))
    with pytest.raises(openai.RateLimitError) as problem:
        client.chat.completions.create(**ask("one too many", model="limited"))
    assert problem.value.response.headers["steelyard-replica"] == "limited"


def test_overload_is_refused_with_a_time_to_come_back(client: openai.OpenAI) -> None:
    with client.chat.completions.create(**ask("busy", model="narrow", stream=True, **slow(50, 600))) as stream:
        next(stream)
        with pytest.raises(openai.InternalServerError) as problem:
            client.chat.completions.create(**ask("one more", model="narrow"))
    assert problem.value.status_code == 503
    assert problem.value.response.headers["steelyard-reason"] == "queue_full"
    assert int(problem.value.response.headers["retry-after"]) >= 1


def test_the_client_comes_back_after_overload_and_is_served(client: openai.OpenAI) -> None:
    def retries() -> int:
        """None, if this machine stood still while the other was served."""
        stream = client.chat.completions.create(**ask("busy", model="narrow", stream=True, **slow(50, 20)))
        next(iter(stream))
        rest = threading.Thread(target=lambda: list(stream))
        rest.start()
        patient = client.with_options(max_retries=10)
        raw = patient.chat.completions.with_raw_response.create(**ask("i can wait", model="narrow"))
        rest.join()
        assert raw.parse().choices[0].message.content == answer("i can wait")
        return raw.retries_taken

    assert wait_until(retries, "it was never refused") >= 1


def test_the_client_gives_up_and_the_replica_is_free_again(client: openai.OpenAI) -> None:
    hasty = client.with_options(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        hasty.chat.completions.create(**ask("too slow", model="narrow", **slow(100, 30)))

    def served() -> bool:  # `narrow` has room for one request: until the lost one is given back, there is none
        try:
            client.chat.completions.create(**ask("next", model="narrow"))
        except openai.InternalServerError:
            return False
        return True

    wait_until(served, "room for another request")


def test_a_deadline_in_a_header_is_kept(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as problem:
        client.chat.completions.create(**ask("hurry", **slow(100, 100)), extra_headers={"steelyard-timeout-ms": "400"})
    assert problem.value.response.headers["steelyard-reason"] == "deadline"
