"""A first-byte deadline over real sockets: an idle fleet takes a long stream, and `explain` says how it was judged."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from steelyard.link.decision_log.explain import explain_line
from steelyard.link.decision_log.lines import DecisionLine, FleetLine
from tests.harness import Serving, StubReplica, config, request, scripts, wait_until

MIN_SAMPLES = 8  # answers, after which seconds are predicted
STREAM_SECONDS = 1.5  # seconds of a stream
FIRST_BYTE_DEADLINE_MS = 1200  # ms for its first byte: less than it lasts, and far more than it needs


def stream() -> scripts.Script:
    begin = ["send", scripts.SSE_HEAD + scripts.chunk("data: 0\n\n")]
    return [["body"], begin, ["sleep", STREAM_SECONDS], ["send", scripts.chunk("data: 1\n\n") + "0\r\n\r\n"]]


def explanation(log: Path, id: str) -> str:
    """What `steelyard explain` says of it; empty while it is not written down."""
    lines = (msgspec.json.decode(line, type=DecisionLine | FleetLine) for line in log.read_bytes().split(b"\n")[:-1])
    found = [line for line in lines if isinstance(line, DecisionLine) and line.id == id]
    return " ".join(words for _, words in explain_line(found[0])) if found else ""


@pytest.mark.slow
def test_a_long_stream_with_a_first_byte_deadline_is_served_and_explained() -> None:
    with ExitStack() as stack:
        stub = stack.enter_context(StubReplica("stub", host="0.0.0.0"))
        replicas = [{"url": f"http://127.0.0.{number + 1}:{stub.port}"} for number in range(MIN_SAMPLES)]
        models = {"m": {"dialect": "openai", "concurrency": 1, "policy": "round_robin", "replicas": replicas}}
        gateway = stack.enter_context(
            Serving(config(models, decision_log={"path": "decisions.jsonl", "sample_rate": 1}))
        )

        def ask(**headers: str) -> bytes:
            body = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return request("POST", "/v1/chat/completions", headers=named, body=body, script=stream())

        clients = [stack.enter_context(gateway.connect()) for _ in range(MIN_SAMPLES)]
        for client in clients:
            client.send(ask())
        assert [client.response().status for client in clients] == [200] * MIN_SAMPLES

        client = clients[0]
        client.send(ask(steelyard_timeout_ms=str(FIRST_BYTE_DEADLINE_MS)))
        assert client.response().headers["steelyard-reason"] == "deadline", "a total deadline is judged by the end"
        client.send(ask(x_slo_ttft_ms=str(FIRST_BYTE_DEADLINE_MS), x_request_id="stream-1"))
        answer = client.response()
        assert (answer.status, answer.body) == (200, b"data: 0\n\ndata: 1\n\n")
        log = gateway.folder / "decisions.jsonl"
        words = wait_until(lambda: explanation(log, "stream-1"), "it is written down")
        assert "Held to its first-byte deadline: first byte predicted after" in words
