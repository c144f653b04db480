"""Tracing from a client's request to a collector: real processes, real sockets, OTLP decoded by its own definitions."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import Serving, StubReplica, config, model, new_id, scripts, wait_until
from tests.harness.telemetry.otlp_collector import Collector, attributes

PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def stubs() -> Iterator[list[StubReplica]]:
    with StubReplica("a") as a, StubReplica("b") as b:
        yield [a, b]


@pytest.fixture(scope="module")
def gateway(
    stubs: list[StubReplica], collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    a, b = stubs
    headers: Path = tmp_path_factory.mktemp("secrets") / "headers"
    headers.write_text("# for the collector\nauthorization: Bearer of-traces\n")
    models = {
        "m": model(a, paths=["/m"]),
        "pair": model(a, b, paths=["/pair"], idempotent=True, retry={"max_attempts": 2}, policy="round_robin"),
        "empty": {"replicas": [], "paths": ["/empty"]},
    }
    tracing = {"endpoint": collector.endpoint, "sample_rate": 1, "headers_file": str(headers), "service_name": "shop"}
    with Serving(config(models, tracing=tracing)) as serving:
        yield serving


def traceparent(flags: str = "01") -> tuple[str, str]:
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return f"00-{trace}-{span}-{flags}", trace


def propagated_trace(stub: StubReplica, id: str) -> tuple[str, str, str]:
    """The traceparent that reached the replica: trace, span, flags."""
    match = PARENT.fullmatch(stub.headers(id)["traceparent"])
    assert match is not None
    return match[1], match[2], match[3]


def test_a_callers_trace_goes_on_to_the_replica_and_its_spans_hang_together(
    gateway: Serving, stubs: list[StubReplica], collector: Collector
) -> None:
    parent, trace = traceparent()
    id = new_id()
    answer = gateway.ask(
        target="/m", id=id, headers={"traceparent": parent, "tracestate": "x=1", "x-request-id": "asked-7"}, body=b"{}"
    )
    assert answer.status == 200
    spans = collector.trace(trace, 3)
    (whole,), (queue,), (replica,) = spans.pop("POST"), spans.pop("queue"), spans.pop("replica")
    assert not spans
    assert whole.parent_span_id.hex() == parent[36:52]
    assert queue.parent_span_id == replica.parent_span_id == whole.span_id
    assert propagated_trace(stubs[0], id) == (trace, replica.span_id.hex(), "01")
    assert stubs[0].headers(id)["tracestate"] == "x=1"
    assert whole.start_time_unix_nano <= queue.start_time_unix_nano <= queue.end_time_unix_nano
    assert queue.end_time_unix_nano == replica.start_time_unix_nano
    assert replica.end_time_unix_nano == whole.end_time_unix_nano
    said = attributes(whole)
    assert said["steelyard.request_id"] == "asked-7"
    assert (said["steelyard.model"], said["steelyard.replica"]) == ("m", "a")
    assert (said["http.response.status_code"], said["steelyard.slo"]) == (200, "met")
    assert attributes(replica)["steelyard.replica"] == "a"
    assert (said["url.scheme"], said["server.address"]) == ("http", "model.test")
    assert "error.type" not in said
    there = attributes(replica)
    assert (there["http.request.method"], there["url.scheme"]) == ("POST", "http")
    assert f"http://{there['server.address']}:{there['server.port']}" == stubs[0].url
    assert [event.name for event in replica.events] == ["first byte"]


def test_the_collector_gets_the_headers_of_the_file_and_knows_the_service(
    gateway: Serving, collector: Collector
) -> None:
    parent, trace = traceparent()
    gateway.ask(target="/m", headers={"traceparent": parent})
    collector.trace(trace, 3)
    assert collector.headers[-1]["authorization"] == "Bearer of-traces"
    assert collector.resources[-1]["service.name"] == "shop"


def test_without_a_trace_one_is_begun_and_named_as_the_request(
    gateway: Serving, stubs: list[StubReplica], collector: Collector
) -> None:
    id = new_id()
    trace = gateway.ask(target="/m", id=id).headers["x-request-id"]
    spans = collector.trace(trace, 3)
    assert not spans["POST"][0].parent_span_id
    assert propagated_trace(stubs[0], id) == (trace, spans["replica"][0].span_id.hex(), "01")


def test_a_caller_who_does_not_trace_is_left_in_peace(
    gateway: Serving, stubs: list[StubReplica], collector: Collector
) -> None:
    parent, trace = traceparent("00")
    id = new_id()
    gateway.ask(target="/m", id=id, headers={"traceparent": parent})
    assert stubs[0].headers(id)["traceparent"] == parent
    later, traced = traceparent()
    gateway.ask(target="/m", headers={"traceparent": later})
    collector.trace(traced, 3)
    assert not [span for span in collector.spans if span.trace_id.hex() == trace]


def test_each_attempt_has_its_span_and_the_failed_one_says_so(gateway: Serving, collector: Collector) -> None:
    parent, trace = traceparent()
    answer = gateway.ask(target="/pair", script=scripts.fails(503), headers={"traceparent": parent})
    assert answer.status == 503
    spans = collector.trace(trace, 4)
    assert sorted(attributes(span)["steelyard.replica"] for span in spans["replica"]) == ["a", "b"]
    assert {span.status.code for span in spans["replica"]} == {2}
    assert len(spans["queue"]) == 1
    (whole,) = spans["POST"]
    assert whole.status.code == 2
    assert attributes(whole)["steelyard.attempts"] == 2
    assert attributes(whole)["error.type"] == "503"
    first = attributes(spans["replica"][0])
    assert (first["http.response.status_code"], first["error.type"]) == (503, "503")


def test_a_refusal_is_a_span_without_a_replica(gateway: Serving, collector: Collector) -> None:
    parent, trace = traceparent()
    assert gateway.ask(target="/empty", headers={"traceparent": parent}).status == 503
    spans = collector.trace(trace, 2)
    assert set(spans) == {"POST", "queue"}
    said = attributes(spans["POST"][0])
    assert (said["steelyard.reason"], said["steelyard.fault"]) == ("no_replica", "replica")


def test_a_share_of_the_requests_is_traced(stubs: list[StubReplica]) -> None:
    """None of them: a share of 0, and no caller who decides."""
    with Collector() as collector:
        tracing = {"endpoint": collector.endpoint, "sample_rate": 0, "parent_based": False}
        with Serving(config([stubs[0]], tracing=tracing)) as gateway:
            parent, _ = traceparent()
            id = new_id()
            assert gateway.ask(id=id, headers={"traceparent": parent}).status == 200
            assert stubs[0].headers(id)["traceparent"] == parent
            assert gateway.stop() == 0
        assert not collector.spans


def test_spans_are_sent_before_the_end_and_a_dead_collector_holds_up_nobody(stubs: list[StubReplica]) -> None:
    with Collector() as collector:
        settings = config([stubs[0]], tracing={"endpoint": collector.endpoint, "sample_rate": 1})
        with Serving(settings) as gateway:
            parent, trace = traceparent()
            assert gateway.ask(headers={"traceparent": parent}).status == 200
            assert gateway.stop() == 0
        collector.trace(trace, 3)
        endpoint = collector.endpoint
    settings["tracing"]["endpoint"] = endpoint
    with Serving(settings) as gateway:
        assert all(gateway.ask(script=scripts.plain()).status == 200 for _ in range(20))
        wait_until(lambda: "warning" in gateway.output.lower() and "tracing to" in gateway.output, "it complains")
        assert gateway.output.count("tracing to") == 1
        assert gateway.stop() == 0


def test_tracing_can_be_turned_on_by_a_reload(stubs: list[StubReplica]) -> None:
    with Collector() as collector:
        settings = config([stubs[0]])
        with Serving(settings) as gateway:
            assert gateway.ask().status == 200
            gateway.reload({**settings, "tracing": {"endpoint": collector.endpoint, "sample_rate": 1}})
            wait_until(lambda: gateway.ask().status == 200 and collector.spans, "spans")


def test_what_the_request_bytes_look_like_when_traced(gateway: Serving, stubs: list[StubReplica]) -> None:
    """One traceparent, one id: the caller's own line is not passed on beside ours."""
    parent, trace = traceparent()
    id = new_id()
    assert gateway.ask(target="/m", id=id, headers={"TraceParent": parent}).status == 200
    (line,) = [value for name, value in stubs[0].request(id)["headers"] if name.lower() == "traceparent"]
    assert line.split("-")[1] == trace
    assert line != parent


def test_a_trace_that_was_for_us_alone_ends_here(gateway: Serving, stubs: list[StubReplica]) -> None:
    """`connection: traceparent`: it is not passed on, and the replica hears of a trace of ours."""
    parent, trace = traceparent()
    id = new_id()
    headers = {"traceparent": parent, "x-request-id": "mine", "connection": "traceparent, x-request-id"}
    assert gateway.ask(target="/m", id=id, headers=headers).status == 200
    assert propagated_trace(stubs[0], id)[0] != trace
    assert stubs[0].headers(id)["x-request-id"] != "mine"
