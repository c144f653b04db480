"""The library does not punish its user's own bugs: which exceptions count against a replica, and which do not."""

from __future__ import annotations

import asyncio
import errno
import http
import http.client
import logging
import socket
import ssl
import urllib.error
from collections.abc import Callable

import aiohttp
import httpx
import httpx2
import openai
import pytest
import requests
import urllib3
from tritonclient.utils import InferenceServerException

from steelyard import LoadBalancer, OptionError, Outcome, Refused, State, default_failures
from steelyard.core.reason import Reason

ASKED = httpx.Request("POST", "http://gpu-a/predict")
ASKED2 = httpx2.Request("POST", "http://gpu-a/predict")


def fail(lb: LoadBalancer, error: BaseException, times: int = 30) -> None:
    for _ in range(times):
        try:
            with lb.route():
                raise error
        except type(error):
            pass


@pytest.mark.parametrize("error", [KeyError("logits"), ValueError("not JSON"), TypeError(), FileNotFoundError(2, "x")])
def test_a_bug_in_the_block_gives_the_slot_back_and_ejects_nobody(error: Exception) -> None:
    lb = LoadBalancer(["a", "b", "c"], concurrency=1)
    fail(lb, error)
    assert set(lb.states.values()) == {State.READY}
    assert [(r.in_flight, r.failed) for r in lb.stats().replicas.values()] == [(0, 0)] * 3


def test_the_same_bug_in_async_code_ejects_nobody() -> None:
    async def main() -> None:
        lb = LoadBalancer(["a", "b"], concurrency=1)
        for _ in range(30):
            with pytest.raises(KeyError):
                async with lb.route():
                    raise KeyError("logits")
        assert set(lb.states.values()) == {State.READY}
        assert lb.load == {"a": 0, "b": 0}

    asyncio.run(main())


def test_connection_errors_eject_a_replica() -> None:
    lb = LoadBalancer(["a"])
    fail(lb, ConnectionResetError(), times=5)
    assert lb.states == {"a": State.EJECTED}


def http_status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("", request=ASKED, response=httpx.Response(code, request=ASKED))


def requests_status(code: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = code
    return requests.HTTPError("", response=response)


def aiohttp_status(code: int) -> aiohttp.ClientResponseError:
    info = aiohttp.RequestInfo("http://gpu-a", "POST", {}, "http://gpu-a")  # type: ignore[arg-type]
    return aiohttp.ClientResponseError(info, (), status=code)


def openai_status(code: int) -> openai.APIStatusError:
    return openai.APIStatusError("", response=httpx2.Response(code, request=ASKED2), body=None)


def urllib_status(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://gpu-a", code, "", http.client.HTTPMessage(), None)


def triton_status(code: int) -> InferenceServerException:
    return InferenceServerException("", status=str(code))


@pytest.mark.parametrize(
    "client", [http_status, requests_status, aiohttp_status, openai_status, urllib_status, triton_status]
)
def test_statuses_of_known_clients_count_by_whose_fault_they_are(client: Callable[[int], Exception]) -> None:
    found = {code: default_failures(client(code)) for code in (400, 404, 422, 429, 500, 501, 502, 503, 504)}
    error, overloaded = Outcome.ERROR, Outcome.OVERLOADED
    assert found == {
        400: None,
        404: None,
        422: None,
        429: overloaded,
        500: error,
        501: None,
        502: error,
        503: overloaded,
        504: error,
    }


class Rpc(Exception):
    """As grpc's own, which is not installed here."""

    __module__ = "grpc"

    def __init__(self, name: str) -> None:
        self.name = name

    def code(self) -> object:
        return self


class Wrapper(Exception):
    pass


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


U, B, T, N = Outcome.UNREACHABLE, Outcome.CONNECTION_LOST, Outcome.TIMEOUT, None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConnectionRefusedError(), U),
        (ConnectionResetError(), B),
        (BrokenPipeError(), B),
        (TimeoutError(), T),
        (socket.gaierror(), U),
        (OSError(errno.EHOSTUNREACH, "no route"), U),
        (PermissionError(errno.EACCES, "a file"), N),
        (ssl.SSLCertVerificationError(), U),
        (http.client.RemoteDisconnected(), B),
        (http.client.IncompleteRead(b""), B),
        (httpx.ConnectError(""), U),
        (httpx.ConnectTimeout(""), U),
        (httpx2.ConnectTimeout(""), U),
        (httpx.ReadTimeout(""), T),
        (httpx.PoolTimeout(""), N),
        (httpx.RemoteProtocolError(""), B),
        (httpx.ReadError(""), B),
        (httpx.UnsupportedProtocol(""), N),
        (requests.ConnectTimeout(), U),
        (requests.ReadTimeout(), T),
        (requests.ConnectionError(urllib3.exceptions.ProtocolError("aborted")), B),
        (requests.exceptions.InvalidURL(), N),
        (urllib.error.URLError(ConnectionRefusedError()), U),
        (urllib.error.URLError(ConnectionResetError()), B),
        (aiohttp.ServerDisconnectedError(), B),
        (aiohttp.ServerTimeoutError(), T),
        (aiohttp.ConnectionTimeoutError(), U),
        (caused(openai.APIConnectionError(request=ASKED2), httpx2.ConnectError("")), U),
        (caused(openai.APIConnectionError(request=ASKED2), Refused(Reason.QUEUE_TIMEOUT)), N),
        (caused(openai.APITimeoutError(request=ASKED2), httpx2.ReadTimeout("")), T),
        (caused(openai.APITimeoutError(request=ASKED2), httpx2.PoolTimeout("")), N),
        (openai.APITimeoutError(request=ASKED2), T),
        (Rpc("UNAVAILABLE"), B),
        (InferenceServerException("", status="StatusCode.DEADLINE_EXCEEDED"), T),
        (aiohttp_status(http.HTTPStatus.BAD_GATEWAY), Outcome.ERROR),
        (Rpc("INVALID_ARGUMENT"), N),
        (caused(Wrapper(), ConnectionRefusedError()), U),
        (ExceptionGroup("", [KeyError(), ConnectionResetError()]), B),
        (ExceptionGroup("", [KeyError()]), N),
        (Refused(Reason.QUEUE_FULL), N),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_of_known_clients_are_recognised(error: BaseException, outcome: Outcome | None) -> None:
    assert default_failures(error) is outcome


def test_a_real_refused_connection_of_each_client_is_one_where_nothing_was_sent() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening
        url = f"http://127.0.0.1:{held.getsockname()[1]}/"

        async def with_aiohttp() -> None:
            async with aiohttp.ClientSession() as session, session.get(url):
                pass

        def with_openai() -> None:
            openai.OpenAI(api_key="x", base_url=url, max_retries=0).models.list()

        clients: list[Callable[[], object]] = [
            lambda: httpx.get(url),
            lambda: requests.get(url, timeout=5),
            lambda: urllib3.PoolManager(retries=False).request("GET", url),
            lambda: asyncio.run(with_aiohttp()),
            with_openai,
        ]
        for client in clients:
            with pytest.raises(Exception) as raised:  # noqa: PT011
                client()
            assert default_failures(raised.value) is Outcome.UNREACHABLE, repr(raised.value)


class ModelError(Exception):
    pass


def test_the_user_says_which_types_count() -> None:
    lb = LoadBalancer(["a"], failures=(ModelError,))
    fail(lb, ConnectionResetError(), times=10)
    assert lb.states == {"a": State.READY}
    fail(lb, ModelError(), times=5)
    assert lb.states == {"a": State.EJECTED}


def test_the_default_and_a_type_of_the_users_own_together() -> None:
    lb = LoadBalancer(["a"], failures=[default_failures, ModelError])
    fail(lb, ModelError(), times=2)
    fail(lb, ConnectionResetError(), times=2)
    fail(lb, KeyError(), times=2)
    assert lb.stats().replicas["a"].failed == 4


def test_a_predicate_may_say_how_it_failed() -> None:
    asked: list[BaseException] = []

    def judge(error: BaseException) -> Outcome | None:
        asked.append(error)
        return Outcome.OVERLOADED if isinstance(error, ModelError) else None

    lb = LoadBalancer(["a", "b"], failures=judge)
    tried: list[str] = []

    def work(replica: str) -> str:
        tried.append(replica)
        if len(tried) == 1:
            raise ModelError
        return "done"

    assert lb.call(work, idempotent=False) == "done"  # overloaded: the first did nothing
    assert set(tried) == {"a", "b"}
    with pytest.raises(KeyboardInterrupt), lb.route():
        raise KeyboardInterrupt
    assert len(asked) == 1  # an interruption is not asked about


def test_a_predicate_that_raises_does_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: BaseException) -> bool:
        raise AttributeError("a bug of the user's")

    lb = LoadBalancer(["a"], failures=broken)
    with caplog.at_level(logging.ERROR, "steelyard.library"):
        fail(lb, ValueError(), times=1)
    assert "failures raised on ValueError" in caplog.text
    assert lb.load == {"a": 0}


@pytest.mark.parametrize("wrong", [3, "ValueError", [int], [ValueError, "x"]])
def test_failures_that_are_none_are_named(wrong: object) -> None:
    with pytest.raises(OptionError, match="failures"):
        LoadBalancer(["a"], failures=wrong)  # type: ignore[arg-type]


def test_cancellation_counts_as_the_client_leaving() -> None:
    async def main() -> None:
        lb = LoadBalancer(["a"], concurrency=1)

        async def forever() -> None:
            async with lb.route():
                await asyncio.Event().wait()

        for _ in range(10):
            task = asyncio.create_task(forever())
            await asyncio.sleep(0)
            assert lb.load == {"a": 1}
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (lb.load, lb.states) == ({"a": 0}, {"a": State.READY})

    asyncio.run(main())


def test_the_callers_own_timeout_ejects_nobody() -> None:
    """As 24 slow requests with a deadline of 300 ms did through the gateway."""
    from .clock import Clock

    clock = Clock()
    lb = LoadBalancer(["a"], clock=clock)
    for _ in range(40):
        with lb.route():
            clock.now += 2.0
    refused = 0
    for _ in range(60):
        try:
            with lb.route(timeout=1.9):
                clock.now += 1.9
                raise TimeoutError
        except TimeoutError:
            pass
        except Refused:
            refused += 1
    assert refused < 60
    assert lb.states == {"a": State.READY}
