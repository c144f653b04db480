"""Tracing with OpenTelemetry: a few spans of each sampled request.

A caller's `traceparent` is passed on where a request is not traced; where it is, the replica gets the span of its
attempt instead, so that its own spans hang below that.
"""

from __future__ import annotations

import os
import socket
from random import getrandbits, random
from time import monotonic, time_ns
from typing import NamedTuple

from ... import __version__
from ...addresses import Address
from ...config import TracingConfig
from ...config.otlp_exporter import exporter
from ...core.replica import Replica
from ...core.slo.verdicts import CLIENT, MET, SLO_VERDICTS
from ...protocols.dialects.http import CALL_KINDS
from ..exchange import Exchange
from .model_stats import OK
from .observers import CLOSE_SECONDS, RequestObserver, Tracer
from .otlp_exporter import OtlpExporter
from .span_encoding import CLIENT_SPAN, INTERNAL_SPAN, SERVER_SPAN, Attributes, encode_span

TRACEPARENT_PREFIX = b"traceparent: "
TRACEPARENT = TRACEPARENT_PREFIX[:12]
SAMPLED_FLAG = 0x01
GENERATION_NAMES = {
    **dict.fromkeys(("chat", "chat_batch", "responses", "messages"), "chat"),
    **dict.fromkeys(("completions", "generate"), "text_completion"),
}


class OtelTracer(Tracer):
    def __init__(self, settings: TracingConfig, worker: int) -> None:
        """OSError, ValueError: the file with headers cannot be read, or the environment makes no sense."""
        self.settings = settings
        self.sample = float(settings.sample_rate)
        resource: dict[str, str | int] = {
            "service.name": settings.service_name,
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}/{os.getpid()}",
            "steelyard.worker": worker,
        }
        to = exporter(settings, os.environ)
        self.sender = OtlpExporter(to.endpoint, to.headers, resource, to.timeout)

    def begin(self, exchange: Exchange) -> None:
        traceparent = b""
        if exchange.has_traceparent:
            lines = exchange.header_lines
            traceparent = next((line[12:].strip() for line in lines if line[:12].lower() == TRACEPARENT), b"")
        if traceparent and self.settings.parent_based:
            if not int(traceparent[53:55], 16) & SAMPLED_FLAG:
                return
        elif traceparent and random() >= self.sample:  # the others were sampled before
            return
        exchange.observers = (OtelSpan(self.sender, exchange, traceparent),)

    @property
    def dropped(self) -> int:  # type: ignore[override]
        return self.sender.dropped

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        self.sender.close(timeout)


class _Attempt(NamedTuple):
    id: bytes
    since: float
    hedged: bool
    predicted: float
    address: Address | None


class OtelSpan(RequestObserver):
    __slots__ = ("_attempts", "_id", "_method", "_names", "_offset", "_parent", "_sender", "_trace", "_waited")

    def __init__(self, sender: OtlpExporter, exchange: Exchange, traceparent: bytes) -> None:
        self._sender = sender
        self._offset = time_ns() - int(monotonic() * 1e9)  # to the wall clock
        self._attempts: dict[str, _Attempt] = {}  # that run, by replica
        self._method = exchange.route.method.decode("latin-1")
        self._waited = False
        self._id = _new_id()
        names = exchange.trace_lines
        if traceparent:
            self._trace = bytes.fromhex(traceparent[3:35].decode())
            self._parent = bytes.fromhex(traceparent[36:52].decode())
            exchange.header_lines = [line for line in exchange.header_lines if line[:12].lower() != TRACEPARENT]
        else:
            at = names.index(TRACEPARENT_PREFIX) + len(TRACEPARENT_PREFIX) + 3
            self._trace, self._parent = bytes.fromhex(names[at : at + 32].decode()), b""
        self._names = b"\r\n".join(line for line in names.split(b"\r\n") if line and line[:12] != TRACEPARENT)

    def dispatched(self, exchange: Exchange, replica: Replica, now: float, hedged: bool) -> None:
        self._end_queue_span(exchange, now)
        id = _new_id()
        running = exchange.hedge if hedged else exchange.attempt
        predicted, address = 0.0, None
        if running is not None:
            predicted, address = running.predicted, running.replica.context.pool.address
        self._attempts[replica.id] = _Attempt(id, now, hedged, predicted, address)
        parent = TRACEPARENT_PREFIX + b"00-%b-%b-01" % (self._trace.hex().encode(), id.hex().encode())
        exchange.trace_lines = self._names + b"\r\n" + parent if self._names else parent

    def attempt_lost(self, exchange: Exchange, replica: Replica, how: str, now: float, status: int = 0) -> None:
        if replica.id in self._attempts:
            self._end_attempt(replica.id, now, {"http.response.status_code": status} if status else {}, how)

    def finished(self, exchange: Exchange, outcome: str, reason: str, now: float) -> None:
        self._end_queue_span(exchange, now)
        for replica in list(self._attempts):
            if exchange.first_byte and replica == exchange.replica_id:
                status = {"http.response.status_code": exchange.status, **_generation(exchange)}
                self._end_attempt(replica, now, status, "", self._wall(exchange.first_byte))
            else:
                self._end_attempt(replica, now, {}, "")
        route = exchange.route
        method, call = route.method.decode("latin-1"), route.call.kind
        judged = fault = ""
        if exchange.stats is not None and not route.health_request:
            judged, fault = SLO_VERDICTS[exchange.slo_verdict]
        said: dict[str, str | int] = {
            "http.request.method": method,
            "url.scheme": exchange.client.forwarding.proto.decode(),
            "url.path": route.path,
            **server_attributes(exchange.host.decode("latin-1")),
            "http.response.status_code": exchange.status,
            "steelyard.request_id": exchange.request_id.decode("latin-1"),
            "steelyard.model": exchange.model,
            "steelyard.tenant": exchange.tenant,
            "steelyard.replica": exchange.replica_id,
            "steelyard.outcome": outcome,
            "steelyard.slo": judged,
            "steelyard.fault": fault,
            "steelyard.reason": reason,
            "steelyard.attempts": exchange.attempt_count,
            "error.type": str(exchange.status) if exchange.status >= 500 else reason if outcome != OK else "",
        }
        name = method if call == CALL_KINDS.get(method, "other") else f"{method} {call}"
        broken = judged not in ("", MET) and fault != CLIENT
        about = {name: value for name, value in said.items() if value not in ("", 0)}
        problem = (reason or judged) if broken else ""
        self._add(self._id, self._parent, name, SERVER_SPAN, exchange.started_at, now, about, problem)

    def _end_queue_span(self, exchange: Exchange, now: float) -> None:
        if not self._waited and exchange.arrived:
            self._waited = True
            self._add(_new_id(), self._id, "queue", INTERNAL_SPAN, exchange.arrived, now, {})

    def _end_attempt(self, replica: str, now: float, said: Attributes, problem: str, first_byte: int = 0) -> None:
        attempt = self._attempts.pop(replica)
        status = said.get("http.response.status_code", 0)
        error = str(status) if isinstance(status, int) and status >= 500 else problem
        about: Attributes = {
            "http.request.method": self._method,
            **_upstream_attributes(attempt.address),
            "steelyard.replica": replica,
            "steelyard.hedged": attempt.hedged,
            "steelyard.predicted_seconds": attempt.predicted,
            **said,
            **({"error.type": error} if error else {}),
        }
        self._add(attempt.id, self._id, "replica", CLIENT_SPAN, attempt.since, now, about, problem, first_byte)

    def _add(
        self,
        id: bytes,
        parent: bytes,
        name: str,
        kind: int,
        began: float,
        ended: float,
        said: Attributes,
        problem: str = "",
        first_byte: int = 0,
    ) -> None:
        times = self._wall(began), self._wall(ended)
        self._sender.add(encode_span(self._trace, id, parent, name, kind, *times, said, problem, first_byte))

    def _wall(self, when: float) -> int:
        return int(when * 1e9) + self._offset


def _generation(exchange: Exchange) -> dict[str, str | int]:
    """By the semantic conventions for generative AI (in development: of 1.41). A server of one's own is no provider of
    theirs, so its dialect is named."""
    route, usage = exchange.route, exchange.usage
    if not route.counts_tokens:
        return {}
    said: dict[str, str | int] = {
        "gen_ai.operation.name": GENERATION_NAMES.get(route.call.kind, route.call.kind),
        "gen_ai.provider.name": route.dialect.name,
        "gen_ai.request.model": exchange.model,
    }
    model = exchange.tokens.model() if exchange.tokens is not None else ""
    if model:
        said["gen_ai.response.model"] = model
    if usage is not None:
        said["gen_ai.usage.output_tokens"] = usage.output
        if usage.prompt:
            said["gen_ai.usage.input_tokens"] = usage.prompt
        if usage.cached:
            said["gen_ai.usage.cache_read.input_tokens"] = usage.cached
    return said


def server_attributes(authority: str) -> dict[str, str | int]:
    """`server.address` and `server.port`, as the client named them."""
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > 5 or host.endswith(":"):  # of an IPv6 address without a port
        return {"server.address": authority.strip("[]")}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def _upstream_attributes(address: Address | None) -> dict[str, str | int]:
    if address is None:
        return {}
    if address.path:
        return {"server.address": address.path}
    scheme = "https" if address.tls else "http"
    return {"server.address": address.host, "server.port": address.port, "url.scheme": scheme}


def _new_id() -> bytes:
    return (getrandbits(64) or 1).to_bytes(8, "big")
