"""A worker whose balancer process is away: what it holds, and what its clients hear."""

from collections.abc import Callable

from steelyard.gateway.shared_balancer.client import BalancerClient
from steelyard.gateway.shared_balancer.messages import Submit

from ..reading import read_answer, request
from ..stage import Stage

ONE = "{models: {m: {dialect: openai, queue_timeout: 5s, replicas: [{url: 'http://a:1'}]}}}"
BODY = b'{"model": "m", "messages": [], "prompt_cache_key": "' + b"k" * 10_000 + b'"}'


def test_a_request_waits_its_time_and_its_body_counts_as_held(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE, balancer=BalancerClient(0, 1))
    client = stage.client()
    client.says(request("POST /v1/chat/completions", body=BODY))
    assert stage.proxy.buffers.held_bytes == len(BODY)
    stage.pass_time(4.9)
    assert client.hears() == b""
    stage.pass_time(0.2)
    assert read_answer(client.hears())["steelyard-reason"] == "queue_timeout"
    assert stage.proxy.buffers.held_bytes == 0


def test_a_key_of_any_length_makes_a_small_message(staged: Callable[..., Stage]) -> None:
    balancer, said = BalancerClient(0, 1), []
    balancer.connect(said.append, said.append)
    stage = staged(ONE, balancer=balancer)
    stage.client().says(request("POST /v1/chat/completions", body=BODY))
    (submit,) = (message for message in said if isinstance(message, Submit))
    assert submit.key == "k" * 256
