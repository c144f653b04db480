"""Configured requests that try a replica: its warm-up, and an inference with a known answer."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Any

import msgspec

from ...config import InferenceProbe, SyntheticRequest
from .http_client import (
    LocalFailureError,
    ProbeOrigin,
    ProbeResponse,
    ReplicaRequestError,
    ResponseTimeoutError,
    TlsContexts,
    describe_request,
)
from .probe import CheckResult, ProbeTarget

MAX_INFERENCE_BODY_BYTES = 8 << 20  # searched for the expected text
MAX_WARM_UP_BODY_BYTES = 64 << 10  # read and dropped
BUSY_STATUSES = (429, 503)  # a server at its limit may decline
RETRYABLE_STATUSES = (408, 425, 429)  # of the 4xx: perhaps soon


class RequestSender:
    """Sends to the replica's own port, like real requests."""

    def __init__(self, target: ProbeTarget, contexts: TlsContexts) -> None:
        self._origin = ProbeOrigin(target, contexts)
        self._headers = target.health.headers

    async def send(self, request: SyntheticRequest, max_bytes: int) -> ProbeResponse:
        message = self.encode(request)
        return await self._origin.send(message, timeout=request.timeout, max_bytes=max_bytes, truncate=True)

    def encode(self, request: SyntheticRequest) -> bytes:
        """Its own headers replace those of all probes."""
        body, content_type = _encode_body(request.body)
        fields = {"content-type": content_type} if content_type else {}
        for name, value in (*self._headers.items(), *request.headers.items()):
            fields[name.lower()] = value
        return self._origin.build_request(_method(request), request.path, fields, body)


class WarmUpRunner:
    """In order, each as often as configured; after a failure it resumes where it stopped."""

    def __init__(self, target: ProbeTarget, contexts: TlsContexts) -> None:
        self._requests = target.health.warm_up
        self._sender = RequestSender(target, contexts)
        self._ends = list(accumulate(request.times for request in self._requests)) or [0]
        self._done = 0
        self._note = ""

    def forget(self) -> None:
        self._done, self._note = 0, ""

    async def run(self) -> CheckResult:
        """A 5xx or a timeout keeps the replica loading; another 4xx does not: the request itself is wrong, and such a
        mistake must not take out the fleet. The note reports it."""
        instance = ""
        while self._done < self._ends[-1]:
            request = self._requests[bisect_right(self._ends, self._done)]
            name = f"warm-up {self._done + 1} of {self._ends[-1]}, {_describe(request)}"
            try:
                response = await self._sender.send(request, MAX_WARM_UP_BODY_BYTES)
            except ReplicaRequestError as error:
                return _no_response(name, error, request)
            status, instance = response.status, response.instance
            if status >= 500 or status in RETRYABLE_STATUSES:
                return CheckResult(f"{name}: answers {status}", instance=instance)
            if status >= 300:
                self._note = f"{name}: answers {status}: check health.warm_up"
            self._done += 1
        return CheckResult(note=self._note, instance=instance)


async def run_inference_check(target: ProbeTarget, contexts: TlsContexts) -> CheckResult:
    probe = target.health.inference
    assert probe is not None
    name = _describe(probe)
    try:
        response = await RequestSender(target, contexts).send(probe, MAX_INFERENCE_BODY_BYTES)
    except ReplicaRequestError as error:
        return _no_response(name, error, probe)
    if problem := _mismatch(probe, response):
        busy = response.status in BUSY_STATUSES
        return CheckResult(f"{name}: {problem}", ambiguous=busy, instance=response.instance)
    return CheckResult(instance=response.instance)


def _mismatch(probe: InferenceProbe, response: ProbeResponse) -> str:
    if response.status != probe.status:
        return f"answers {response.status}, not {probe.status}"
    if probe.contains and probe.contains.encode() not in response.body:
        return f"its answer does not contain {probe.contains!r}"
    return ""


def _no_response(name: str, error: ReplicaRequestError, request: SyntheticRequest) -> CheckResult:
    late = isinstance(error, ResponseTimeoutError)
    limit = f" ({request.timeout:g} s)" if late else ""
    return CheckResult(f"{name}: {error}{limit}", ambiguous=late, inconclusive=isinstance(error, LocalFailureError))


def _method(request: SyntheticRequest) -> str:
    return request.method.upper() or ("GET" if request.body is None else "POST")


def _describe(request: SyntheticRequest) -> str:
    return describe_request(_method(request), request.path)


def _encode_body(body: Any) -> tuple[bytes, str]:
    if body is None:
        return b"", ""
    if not isinstance(body, str):
        return msgspec.json.encode(body), "application/json"
    return body.encode(), "application/json" if body.lstrip().startswith(("{", "[")) else "text/plain; charset=utf-8"
