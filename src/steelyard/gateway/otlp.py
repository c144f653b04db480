"""Spans on their way to an OpenTelemetry collector: encoded by OpenTelemetry's own definitions, sent by a thread (OTLP
over HTTP).

Not with OpenTelemetry's SDK, which takes more than three times as long: docs/decisions/0019-spans-without-the-sdk.md.
"""

from __future__ import annotations

import http.client
import sys
import threading
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Message
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from .. import __version__

Attributes = Mapping[str, str | int | float | bool]

WAITING = 2048  # spans that may wait for the collector; more are dropped
AT_ONCE = 512
EVERY = 1.0  # seconds between two batches
PATIENCE = 5.0  # seconds for the collector to take a batch
PAUSES = (1.0, 2.0, 4.0)  # seconds before a batch is tried again; then it is dropped
AGAIN = (429, 502, 503, 504)  # the collector may take it later
TELL_EVERY = 60.0  # seconds between two complaints


class Span(NamedTuple):
    trace: bytes  # 16
    id: bytes  # 8
    parent: bytes  # 8, or empty
    name: str
    kind: int  # of the definition: SERVER, CLIENT, INTERNAL
    began: int  # nanoseconds of the wall's clock
    ended: int
    attributes: Attributes
    error: str = ""  # why it is one; empty: it is none
    first_byte: int = 0  # when; 0: never


class Sender:
    def __init__(self, endpoint: str, headers: Mapping[str, str], resource: Attributes) -> None:
        self._endpoint = endpoint
        self._url = urlsplit(endpoint)
        self._headers = {"content-type": "application/x-protobuf", **headers}
        self._resource = resource
        self._waiting: deque[Span] = deque()
        self.missing = 0  # spans, since the worker began
        self._dropped = 0  # not complained of yet
        self._told_at = -TELL_EVERY
        self._connection: http.client.HTTPConnection | None = None
        self._more = threading.Event()  # there is a whole batch, or the end has come
        self._over = False
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        if len(self._waiting) >= WAITING:
            self._dropped += 1
            self.missing += 1
            return
        self._waiting.append(span)
        if len(self._waiting) == AT_ONCE:
            self._more.set()

    def close(self, patience: float) -> None:
        """The thread ends when it has sent what is left, or tried to."""
        self._over = True
        self._more.set()
        self._thread.join(patience)

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while not self._over or self._waiting:
            self._more.wait(EVERY)
            self._more.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
                self._send(encoded(batch, self._resource), len(batch))

    def _send(self, body: bytes, spans: int) -> None:
        problem = ""
        for pause in (*PAUSES, 0.0):
            try:
                status = self._post(body)
                if status < 300:
                    if self._dropped:
                        self._complain("there were too many at once")
                    return
                problem = f"it answers {status}"
                if status not in AGAIN:
                    break
            except (OSError, http.client.HTTPException) as wrong:
                problem = str(wrong) or type(wrong).__name__
                self._connection = None
            self._more.clear()  # that there is more to send is no reason to press a collector that has enough
            if self._over:
                break
            self._more.wait(pause)
        self._dropped += spans
        self.missing += spans
        self._complain(problem)

    def _post(self, body: bytes) -> int:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._url.hostname or "", self._url.port, timeout=PATIENCE)
        path = self._url.path or "/"
        target = f"{path}?{self._url.query}" if self._url.query else path
        self._connection.request("POST", target, body, self._headers)
        with self._connection.getresponse() as answer:
            answer.read(1 << 16)
            if answer.will_close:
                self._connection.close()
            return answer.status

    def _complain(self, problem: str) -> None:
        """Once a minute, not for each batch."""
        now = monotonic()
        if now - self._told_at >= TELL_EVERY:
            self._told_at = now
            dropped, self._dropped = self._dropped, 0
            what = f"{dropped} spans were lost: {problem}"
            print(f"warning tracing to {self._endpoint}: {what}", file=sys.stderr, flush=True)


def encoded(spans: list[Span], resource: Attributes) -> bytes:
    request = ExportTraceServiceRequest()
    whole = request.resource_spans.add()
    whole.resource.attributes.extend(_pairs(resource))
    scope = whole.scope_spans.add()
    scope.scope.name, scope.scope.version = "steelyard", __version__
    for span in spans:
        message = scope.spans.add(
            trace_id=span.trace,
            span_id=span.id,
            parent_span_id=span.parent,
            name=span.name,
            kind=Message.SpanKind.ValueType(span.kind),
            start_time_unix_nano=span.began,
            end_time_unix_nano=span.ended,
            attributes=_pairs(span.attributes),
        )
        if span.error:
            message.status.code, message.status.message = Status.STATUS_CODE_ERROR, span.error
        if span.first_byte:
            message.events.add(name="first byte", time_unix_nano=span.first_byte)
    body: bytes = request.SerializeToString()
    return body


def _pairs(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in attributes.items()]


def _value(value: str | int | float | bool) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(string_value=value)
