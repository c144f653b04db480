"""Tracing with OpenTelemetry: spans of sampled requests, sent by a thread to a collector (OTLP over HTTP).

A caller's `traceparent` is passed on as it came where a request is not traced; where it is, the replica is told of the
span of its attempt instead, so that its own spans hang below that.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from random import random
from time import monotonic, time_ns

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from .. import __version__
from ..config import Tracing as Settings
from ..config.headers import read_headers
from ..core.slo import CLIENT, JUDGEMENTS, MET
from ..protocols.plain import KINDS as PLAIN
from .exchange import Exchange
from .spans import LAST, RequestSpan, Tracing

PARENT = b"traceparent: "
SAMPLED = 0x01
WAITING = 2048  # spans that may wait for the collector; more are dropped
AT_ONCE = 512
EVERY = 1000  # ms between two batches
PATIENCE = 5.0  # seconds for the collector to take a batch
TELL_EVERY = 60.0  # seconds between two complaints about the collector

log = logging.getLogger("opentelemetry")


class Otel(Tracing):
    def __init__(self, settings: Settings, worker: int) -> None:
        """OSError, ValueError: the file with headers cannot be read."""
        headers = read_headers(settings.headers_file) if settings.headers_file else {}
        self.settings = settings
        self.complaints = _complain(settings.endpoint)
        self.ids = _Ids()
        resource = Resource(
            {
                "service.name": settings.service,
                "service.version": __version__,
                "service.instance.id": f"{socket.gethostname()}/{os.getpid()}",
                "steelyard.worker": worker,
            }
        )
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self.ids, shutdown_on_exit=False
        )
        exporter = OTLPSpanExporter(endpoint=settings.endpoint, headers=headers, timeout=PATIENCE)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter, max_queue_size=WAITING, max_export_batch_size=AT_ONCE, schedule_delay_millis=EVERY
            )
        )
        self.tracer = self._provider.get_tracer("steelyard", __version__)

    def begin(self, exchange: Exchange) -> None:
        told = b""
        if exchange.traced:
            told = next((line[12:].strip() for line in exchange.lines if line[:12].lower() == b"traceparent:"), b"")
        if told and self.settings.parent:
            if not int(told[53:55], 16) & SAMPLED:
                return
        elif random() >= self.settings.sample:
            return
        exchange.span = Traced(self, exchange, told)

    def close(self, patience: float = LAST) -> None:
        ending = threading.Thread(target=self._provider.shutdown, name="tracing-ends", daemon=True)
        ending.start()
        ending.join(patience)
        log.removeHandler(self.complaints)


class _Ids(RandomIdGenerator):
    """Random, but for a trace that has a name already: that of its request."""

    def __init__(self) -> None:
        self.trace = 0

    def generate_trace_id(self) -> int:
        return self.trace or super().generate_trace_id()


class Traced(RequestSpan):
    __slots__ = ("_attempts", "_context", "_names", "_offset", "_span", "_tracer", "_waited")

    def __init__(self, tracing: Otel, exchange: Exchange, told: bytes) -> None:
        self._tracer = tracing.tracer
        self._offset = time_ns() - int(monotonic() * 1e9)  # a trace is for people: it has the wall's time
        self._attempts: dict[str, Span] = {}  # that run
        self._waited = False
        parent = None
        if told:
            parent = trace.set_span_in_context(NonRecordingSpan(_context_of(told)), Context())
            exchange.lines = [line for line in exchange.lines if line[:12].lower() != b"traceparent:"]
        else:
            tracing.ids.trace = int(_trace_of(exchange.names), 16)
        method = exchange.route.method.decode("latin-1")
        call = exchange.route.call.kind
        self._span = tracing.tracer.start_span(
            method if call == PLAIN.get(method, "other") else f"{method} {call}",
            context=parent or Context(),
            kind=SpanKind.SERVER,
            start_time=self._wall(exchange.began),
            attributes={
                "http.request.method": method,
                "url.path": exchange.route.path,
                "steelyard.request_id": exchange.request_id.decode("latin-1"),
            },
        )
        tracing.ids.trace = 0
        self._context = trace.set_span_in_context(self._span, Context())
        self._names = b"\r\n".join(line for line in exchange.names.split(b"\r\n") if line and line[:12] != PARENT[:12])

    def sent(self, exchange: Exchange, replica: str, now: float, hedged: bool) -> None:
        self._wait_is_over(exchange, now)
        span = self._tracer.start_span(
            "replica",
            context=self._context,
            kind=SpanKind.CLIENT,
            start_time=self._wall(now),
            attributes={"steelyard.replica": replica, "steelyard.hedged": hedged},
        )
        if exchange.flight is not None:
            span.set_attribute("steelyard.predicted_seconds", exchange.flight.predicted)
        self._attempts[replica] = span
        context = span.get_span_context()
        parent = PARENT + b"00-%032x-%016x-01" % (context.trace_id, context.span_id)
        exchange.names = self._names + b"\r\n" + parent if self._names else parent

    def lost(self, replica: str, why: str, now: float) -> None:
        span = self._attempts.pop(replica, None)
        if span is not None:
            span.set_status(Status(StatusCode.ERROR, why))
            span.end(self._wall(now))

    def end(self, exchange: Exchange, verdict: str, reason: str, now: float) -> None:
        self._wait_is_over(exchange, now)
        for replica, attempt in self._attempts.items():
            if exchange.first_byte and replica == exchange.replica_id:
                attempt.add_event("first byte", timestamp=self._wall(exchange.first_byte))
                attempt.set_attribute("http.response.status_code", exchange.status)
            attempt.end(self._wall(now))
        self._attempts.clear()
        judged, fault = JUDGEMENTS[exchange.judgement]
        said: dict[str, str | int] = {
            "http.response.status_code": exchange.status,
            "steelyard.model": exchange.model,
            "steelyard.tenant": exchange.tenant,
            "steelyard.replica": exchange.replica_id,
            "steelyard.verdict": verdict,
            "steelyard.sla": judged if exchange.account is not None else "",
            "steelyard.fault": fault,
            "steelyard.reason": reason,
            "steelyard.attempts": exchange.attempts,
        }
        self._span.set_attributes({name: value for name, value in said.items() if value not in ("", 0)})
        if judged != MET and fault != CLIENT and exchange.account is not None:
            self._span.set_status(Status(StatusCode.ERROR, reason or judged))
        self._span.end(self._wall(now))

    def _wait_is_over(self, exchange: Exchange, now: float) -> None:
        if not self._waited and exchange.arrived:
            self._waited = True
            queue = self._tracer.start_span("queue", context=self._context, start_time=self._wall(exchange.arrived))
            queue.end(self._wall(now))

    def _wall(self, when: float) -> int:
        return int(when * 1e9) + self._offset


def _context_of(told: bytes) -> SpanContext:
    """Of a traceparent that was found to be one (fields.is_trace)."""
    return SpanContext(int(told[3:35], 16), int(told[36:52], 16), True, TraceFlags(int(told[53:55], 16)))


def _trace_of(names: bytes) -> bytes:
    at = names.index(PARENT) + len(PARENT) + 3
    return names[at : at + 32]


class _Complaints(logging.Handler):
    """What the library says of a collector that does not answer: once a minute, not for each batch."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint
        self._told_at = -TELL_EVERY

    def emit(self, record: logging.LogRecord) -> None:
        now = monotonic()
        if now - self._told_at >= TELL_EVERY:
            self._told_at = now
            print(f"warning tracing to {self._endpoint}: {record.getMessage()}", file=sys.stderr, flush=True)


def _complain(endpoint: str) -> _Complaints:
    handler = _Complaints(endpoint)
    log.addHandler(handler)
    log.propagate = False
    return handler
