"""Which requests are traced: a share of those without a trace; of the others whoever traces decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steelyard.gateway.exchange import Exchange
from steelyard.gateway.telemetry.observers import CLOSE_SECONDS, Tracer

from ..reading import answer, read_answer, request
from ..stage import Stage

MODELS = "models: {m: {replicas: [{url: 'http://a:1'}]}}"
PARENT = f"traceparent: 00-{'a' * 32}-{'b' * 16}-01"


class Begun(Tracer):
    """Counts whom it is asked to trace, and traces nobody."""

    def __init__(self, share: float) -> None:
        self.sample = share
        self.count = 0

    def begin(self, exchange: Exchange) -> None:
        self.count += 1

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        pass


def traced(stage: Stage, share: float, requests: int, *headers: str) -> int:
    tracing = Begun(share)
    stage.proxy.recorder.set_tracer(tracing)
    client = stage.client()
    for _ in range(requests):
        client.says(request("GET /a", *headers))
        stage.replica().says(answer())
    stage.proxy.recorder.set_tracer(None)
    return tracing.count


@pytest.mark.parametrize("headers", [(), ("x-request-id: mine",)])
@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.25, 140, 360), (1.0, 1000, 1000)])
def test_a_share_of_those_without_a_trace(
    staged: Callable[..., Stage], share: float, least: int, most: int, headers: tuple[str, ...]
) -> None:
    """The bounds are eight standard deviations away."""
    assert least <= traced(staged(MODELS), share, 1000, *headers) <= most


def test_one_that_comes_with_a_trace_is_always_told_of(staged: Callable[..., Stage]) -> None:
    assert traced(staged(MODELS), 0.0, 10, PARENT) == 10


def test_nobody_is_traced_after_it_is_turned_off(staged: Callable[..., Stage]) -> None:
    stage = staged(MODELS)
    assert traced(stage, 1.0, 1) == 1
    client = stage.client()
    client.says(request("GET /a"))
    stage.replica().says(answer())
    assert read_answer(client.hears()).status == 200
