"""Spans as bytes, read back by OpenTelemetry's own definitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from steelyard.gateway.telemetry.otel import server_attributes
from steelyard.gateway.telemetry.otlp_exporter import encode_export_request
from steelyard.gateway.telemetry.span_encoding import CLIENT_SPAN, INTERNAL_SPAN, SERVER_SPAN, encode_span, varint

TRACE, ID, PARENT = bytes(range(16)), bytes(range(8)), b"\xff" * 8
ANYTHING = st.text() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
TIMES = st.integers(0, 2**64 - 1)


def read(span: bytes) -> Any:
    return Span.FromString(span)


def attributes(span: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes}


@given(st.text(), TIMES, TIMES, st.dictionaries(st.text(), ANYTHING, max_size=20), st.text())
def test_whatever_is_said_is_read_back(name: str, began: int, ended: int, said: dict[str, Any], error: str) -> None:
    span = read(encode_span(TRACE, ID, PARENT, name, SERVER_SPAN, began, ended, said, error, 0))
    assert (span.trace_id, span.span_id, span.parent_span_id, span.name) == (TRACE, ID, PARENT, name)
    assert (span.kind, span.start_time_unix_nano, span.end_time_unix_nano) == (Span.SPAN_KIND_SERVER, began, ended)
    found = attributes(span)
    assert found == said
    assert {key: type(value) for key, value in found.items()} == {key: type(value) for key, value in said.items()}
    assert span.status == (Status(code=Status.STATUS_CODE_ERROR, message=error) if error else Status())
    assert not span.events


def test_what_is_not_there_is_not_told() -> None:
    span = read(encode_span(TRACE, ID, b"", "queue", INTERNAL_SPAN, 1, 2, {}, "", 0))
    assert span == Span(
        trace_id=TRACE,
        span_id=ID,
        name="queue",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=1,
        end_time_unix_nano=2,
    )


def test_the_first_byte_is_an_event() -> None:
    span = read(encode_span(TRACE, ID, PARENT, "replica", CLIENT_SPAN, 1, 3, {}, "", 2))
    assert span.kind == Span.SPAN_KIND_CLIENT
    assert [(event.name, event.time_unix_nano) for event in span.events] == [("first byte", 2)]


def test_many_spans_are_one_message() -> None:
    spans = [encode_span(TRACE, ID, b"", f"s{n}", SERVER_SPAN, n, n + 1, {"long": "x" * n}, "", 0) for n in range(300)]
    request = ExportTraceServiceRequest.FromString(encode_export_request(spans, b"", b"\x0a\x04test"))
    ((scope,),) = [resource.scope_spans for resource in request.resource_spans]
    assert scope.scope.name == "test"
    assert [span.name for span in scope.spans] == [f"s{n}" for n in range(300)]


def test_a_number_has_as_many_bytes_as_it_needs() -> None:
    assert [varint(n) for n in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]
    assert len(varint(-1)) == 10


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("model.test", {"server.address": "model.test"}),
        ("model.test:8443", {"server.address": "model.test", "server.port": 8443}),
        ("[::1]:8080", {"server.address": "::1", "server.port": 8080}),
        ("[::1]", {"server.address": "::1"}),
        ("model.test:port", {"server.address": "model.test:port"}),
        ("", {"server.address": ""}),  # and what is empty is left out
    ],
)
def test_the_server_that_a_client_asked(host: str, said: dict[str, str | int]) -> None:
    assert server_attributes(host) == said
