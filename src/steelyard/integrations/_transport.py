"""Transports that send each request of a client (httpx or httpx2) to a replica.

A request ends when its response is read or closed; before its response it may be retried elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ..core.errors import OptionError
from ..core.outcome import Outcome
from ..library.balancer import LoadBalancer
from ..library.failures import CALLER_LEFT, Refused, outcome_of_status
from ..library.routed_request import RoutedRequest, Target

IDEMPOTENT_METHODS = {"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}  # RFC 9110, 9.2.2
DESCRIBE_KEYS = ("features", "kind", "key", "tenant", "priority", "timeout")
REPLICA_EXTENSION = "steelyard_replica"  # in the extensions of a response: the replica that gave it
SSE_DONE = b"data: [DONE]"
MAX_IDLE_CONNECTIONS = 100  # open ones are unlimited: the balancer bounds concurrency

InnerT = TypeVar("InnerT")  # the client's own transport
RequestT = TypeVar("RequestT")


class RoutingTransport(Generic[InnerT, RequestT]):
    """Replicas are URLs, which replace the scheme, host and port of a request.

    `transport` sends. `describe(request)` returns arguments of `lb.route`: features, kind, key, tenant, priority,
    timeout. `idempotent`: a request that a replica may have begun may be sent again; None: by its method.
    """

    http: Any  # the module httpx or httpx2
    refused: type[Refused]  # as an error of the client
    default_transport: str  # its name in `http`
    stream: type[RoutedBody]

    def __init__(
        self,
        balancer: LoadBalancer,
        *,
        transport: InnerT | None = None,
        describe: Callable[[RequestT], Mapping[str, Any]] | None = None,
        idempotent: bool | None = None,
    ) -> None:
        if transport is None:
            limits = self.http.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS)
            transport = getattr(self.http, self.default_transport)(limits=limits)
        self._balancer = balancer
        self._inner: Any = transport
        self._describe = describe
        self._idempotent = idempotent
        for id in balancer.states:
            self._url(id)

    def _routed(self, request: Any) -> RoutedRequest:
        described = dict(self._describe(request)) if self._describe is not None else {}
        unknown = [name for name in described if name not in DESCRIBE_KEYS]
        if unknown:
            raise OptionError(f"describe: {', '.join(DESCRIBE_KEYS)} are known, not {', '.join(map(repr, unknown))}")
        by_method = request.method in IDEMPOTENT_METHODS
        idempotent = by_method if self._idempotent is None else self._idempotent
        routed = self._balancer.new_request(
            **described,
            wait=(request.extensions.get("timeout") or {}).get("pool"),
            idempotent=idempotent and self._replayable(request),
        )
        routed.request.hedgeable = False  # a response is a stream: one is enough
        return routed

    def _replayable(self, request: Any) -> bool:
        """Whether its body can be sent again: a generator's cannot."""
        return isinstance(request.stream, self.http.ByteStream)

    def _aimed(self, request: Any, target: Target) -> Any:
        base = self._url(target)
        url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + request.url.raw_path)
        headers = request.headers.copy()
        headers["host"] = base.netloc.decode("ascii")
        return self.http.Request(
            request.method, url, headers=headers, stream=request.stream, extensions=request.extensions
        )

    def _url(self, id: str) -> Any:
        url = self.http.URL(str(id))
        if url.scheme not in ("http", "https") or not url.host or url.query or url.userinfo:
            raise OptionError(f"replica {str(id)!r}: must be a URL such as http://127.0.0.1:8000")
        return url

    def _judged(self, response: Any, request: Any) -> Outcome:
        """By its status. If declined, and the body cannot be sent again, an error."""
        if response.status_code < 400:
            return Outcome.OK
        outcome = outcome_of_status(response.status_code)
        declined = outcome is Outcome.OVERLOADED and not self._replayable(request)
        return Outcome.ERROR if declined else outcome

    def _refusal(self, refused: Refused, request: Any) -> Refused:
        error: Any = self.refused(refused.rejection, refused.retry_after)
        error.request = request
        return error  # type: ignore[no-any-return]


class SyncRoutingTransport(RoutingTransport[InnerT, RequestT]):
    default_transport = "HTTPTransport"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.stream = type("RoutedStream", (SyncStream, cls.http.SyncByteStream), {})

    def handle_request(self, request: Any) -> Any:
        routed = self._routed(request)
        try:
            target: Target | None = routed.start()
        except Refused as refused:
            raise self._refusal(refused, request) from None
        while True:
            assert target is not None
            try:
                response = self._inner.handle_request(self._aimed(request, target))
            except BaseException as error:
                target = routed.retry(self._balancer.classify_failure(error))
                if target is None:
                    raise
                continue
            response.extensions[REPLICA_EXTENSION] = str(target)
            outcome = self._judged(response, request)
            if not outcome.failed:
                response.stream = self.stream(response.stream, routed, outcome)
                return response
            target = routed.retry(outcome)
            if target is None:
                return response
            response.close()

    def close(self) -> None:
        self._inner.close()


class AsyncRoutingTransport(RoutingTransport[InnerT, RequestT]):
    default_transport = "AsyncHTTPTransport"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.stream = type("RoutedStream", (AsyncStream, cls.http.AsyncByteStream), {})

    async def handle_async_request(self, request: Any) -> Any:
        routed = self._routed(request)
        try:
            target: Target | None = await routed.astart()
        except Refused as refused:
            raise self._refusal(refused, request) from None
        while True:
            assert target is not None
            try:
                response = await self._inner.handle_async_request(self._aimed(request, target))
            except BaseException as error:
                target = await routed.aretry(self._balancer.classify_failure(error))
                if target is None:
                    raise
                continue
            response.extensions[REPLICA_EXTENSION] = str(target)
            outcome = self._judged(response, request)
            if not outcome.failed:
                response.stream = self.stream(response.stream, routed, outcome)
                return response
            target = await routed.aretry(outcome)
            if target is None:
                return response
            await response.aclose()

    async def aclose(self) -> None:
        await self._inner.aclose()


class RoutedBody:
    """The body of a response: its end, break or close ends the request."""

    def __init__(self, stream: Any, routed: RoutedRequest, outcome: Outcome) -> None:
        self._stream = stream
        self._routed = routed
        self._outcome = outcome
        self._last = b""

    def _broken(self, error: BaseException) -> None:
        self._routed.end(Outcome.CANCELLED if isinstance(error, CALLER_LEFT) else Outcome.TRUNCATED)

    def _closed(self) -> None:
        """`openai` closes a stream after its last event: that counts as read."""
        self._routed.end(self._outcome if self._last.rstrip().endswith(SSE_DONE) else Outcome.CANCELLED)


class SyncStream(RoutedBody):
    def __iter__(self) -> Iterator[bytes]:
        try:
            for part in self._stream:
                self._last = part
                yield part
        except BaseException as error:
            if not isinstance(error, GeneratorExit):  # then `close` follows
                self._broken(error)
            raise
        self._routed.end(self._outcome)

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._closed()


class AsyncStream(RoutedBody):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._stream:
                self._last = part
                yield part
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self._broken(error)
            raise
        self._routed.end(self._outcome)

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._closed()
