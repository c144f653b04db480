"""Sends spans to an OpenTelemetry collector by a thread (OTLP over HTTP).

Not with OpenTelemetry's SDK, which takes many times as long: docs/decisions/0019-spans-without-the-sdk.md.
"""

from __future__ import annotations

import http.client
import sys
import threading
from collections import deque
from collections.abc import Mapping
from time import monotonic
from urllib.parse import urlsplit

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ... import __version__
from .span_encoding import field

MAX_QUEUED_SPANS = 2048  # more are dropped
MAX_BATCH_SPANS = 512
BATCH_SECONDS = 1.0
EXPORT_TIMEOUT_SECONDS = 5.0
RETRY_DELAYS_SECONDS = (1.0, 2.0, 4.0)  # then a batch is dropped
RETRYABLE_STATUSES = (429, 502, 503, 504)
WARNING_INTERVAL_SECONDS = 60.0


class OtlpExporter:
    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        resource: Mapping[str, str | int],
        timeout: float = EXPORT_TIMEOUT_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._timeout = timeout
        self._url = urlsplit(endpoint)
        self._headers = {"content-type": "application/x-protobuf", **headers}
        self._resource = Resource(attributes=[_pair(*said) for said in resource.items()]).SerializeToString()
        self._scope = InstrumentationScope(name="steelyard", version=__version__).SerializeToString()
        self._waiting: deque[bytes] = deque()
        self.dropped = 0  # spans, since the worker began
        self._unreported_drops = 0
        self._told_at = -WARNING_INTERVAL_SECONDS
        self._connection: http.client.HTTPConnection | None = None
        self._more = threading.Event()  # there is a whole batch, or the end has come
        self._over = False
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def add(self, span: bytes) -> None:
        if len(self._waiting) >= MAX_QUEUED_SPANS:
            self._unreported_drops += 1
            self.dropped += 1
            return
        self._waiting.append(span)
        if len(self._waiting) == MAX_BATCH_SPANS:
            self._more.set()

    def close(self, timeout: float) -> None:
        self._over = True
        self._more.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._over or self._waiting:
            self._more.wait(BATCH_SECONDS)
            self._more.clear()
            left = len(self._waiting)  # not those that come meanwhile: they would go one by one
            while left:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH_SPANS, left))]
                left -= len(batch)
                self._send(encode_export_request(batch, self._resource, self._scope), len(batch))

    def _send(self, body: bytes, spans: int) -> None:
        problem = ""
        for pause in (*RETRY_DELAYS_SECONDS, 0.0):
            try:
                status = self._post(body)
                if status < 300:
                    if self._unreported_drops:
                        self._warn("there were too many at once")
                    return
                problem = f"it answers {status}"
                if status not in RETRYABLE_STATUSES:
                    break
            except (OSError, http.client.HTTPException) as wrong:
                problem = str(wrong) or type(wrong).__name__
                self._connection = None
            self._more.clear()  # more to send is no reason to hurry a collector that has enough
            if self._over:
                break
            self._more.wait(pause)
        self._unreported_drops += spans
        self.dropped += spans
        self._warn(problem)

    def _post(self, body: bytes) -> int:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._url.hostname or "", self._url.port, timeout=self._timeout)
        path = self._url.path or "/"
        target = f"{path}?{self._url.query}" if self._url.query else path
        self._connection.request("POST", target, body, self._headers)
        with self._connection.getresponse() as answer:
            answer.read(1 << 16)
            if answer.will_close:
                self._connection.close()
            return answer.status

    def _warn(self, problem: str) -> None:
        now = monotonic()
        if now - self._told_at >= WARNING_INTERVAL_SECONDS:
            self._told_at = now
            dropped, self._unreported_drops = self._unreported_drops, 0
            what = f"{dropped} spans were lost: {problem}"
            print(f"warning tracing to {self._endpoint}: {what}", file=sys.stderr, flush=True)


def encode_export_request(spans: list[bytes], resource: bytes, scope: bytes) -> bytes:
    parts = [field(b"\x0a", scope)]
    parts += [field(b"\x12", span) for span in spans]
    return field(b"\x0a", field(b"\x0a", resource) + field(b"\x12", b"".join(parts)))


def _pair(name: str, value: str | int) -> KeyValue:
    said = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=name, value=said)
