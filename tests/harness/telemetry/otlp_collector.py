"""An OpenTelemetry collector as far as traces go: takes OTLP over HTTP on loopback and decodes it with OpenTelemetry's
own definitions. (A packaged collector cannot be had from the registries that are reachable here.)"""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from ..waiting import wait_until


class Collector:
    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.take(ExportTraceServiceRequest.FromString(body), dict(self.headers))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler

    def take(self, request: ExportTraceServiceRequest, headers: dict[str, str]) -> None:
        self.headers.append({name.lower(): value for name, value in headers.items()})
        for resource in request.resource_spans:
            self.resources.append(attributes(resource.resource))
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def trace(self, id: str, count: int) -> dict[str, list[Any]]:
        """The spans of one trace by name, as soon as there are so many."""

        def found() -> list[Any]:
            spans = [span for span in self.spans if span.trace_id.hex() == id]
            return spans if len(spans) >= count else []

        by_name: dict[str, list[Any]] = {}
        for span in wait_until(found, f"{count} spans of trace {id}"):
            by_name.setdefault(span.name, []).append(span)
        return by_name

    def __enter__(self) -> Collector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def attributes(of: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in of.attributes}
