"""The transports for httpx and httpx2, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from typing import Any

import pytest

from steelyard import HedgeOptions, LoadBalancer, OptionError, Refused, RetryOptions, State

from ..harness.replicas.scripts import SSE_HEAD, chunk, endless, fails, header, raw
from ..harness.waiting import WAIT_TIMEOUT_SECONDS
from .conftest import Stubs
from .engines import with_engine

PLENTY = RetryOptions(initial_tokens=50.0)
numbers = count()


@pytest.fixture(params=["httpx", "httpx2"])
def http(request: pytest.FixtureRequest) -> Any:
    return import_module(request.param)


def transports(http: Any) -> Any:
    return import_module(f"steelyard.integrations.{http.__name__}")


def client(http: Any, lb: LoadBalancer, **options: Any) -> Any:
    transport = transports(http).Transport(lb, **options)
    return http.Client(transport=transport, base_url="http://model", timeout=WAIT_TIMEOUT_SECONDS)


def aclient(http: Any, lb: LoadBalancer, **options: Any) -> Any:
    transport = transports(http).AsyncTransport(lb, **options)
    return http.AsyncClient(transport=transport, base_url="http://model", timeout=WAIT_TIMEOUT_SECONDS)


def urls(stubs: Stubs) -> list[str]:
    return [stub.url for stub in stubs]


def failed(lb: LoadBalancer) -> int:
    return sum(replica.failed for replica in lb.stats().replicas.values())


def test_requests_are_spread_over_the_replicas(http: Any, stubs: Stubs) -> None:
    lb = LoadBalancer([stubs[0].url, f"{stubs[1].url}/prefix/"], policy="round_robin")
    id = f"spread-{next(numbers)}"
    with client(http, lb) as web:
        answers = [web.post("/v1/x%2Fy?q=1", json={"n": n}, headers={"x-test-id": id}) for n in range(4)]
    assert sorted(answer.json()["replica"] for answer in answers) == ["one", "one", "two", "two"]
    assert {a.extensions["steelyard_replica"] for a in answers} == set(lb.states)
    assert {str(a.request.url) for a in answers} == {"http://model/v1/x%2Fy?q=1"}  # as the caller knows it
    for stub, path in zip(stubs, ("/v1/x%2Fy?q=1", "/prefix/v1/x%2Fy?q=1"), strict=True):
        stub.sync()
        seen = stub.of("request", id=id)
        assert [one["target"] for one in seen] == [path, path]
        assert {tuple(pair) for one in seen for pair in one["headers"] if pair[0] == "host"} == {
            ("host", stub.url.removeprefix("http://"))
        }
    assert set(lb.load.values()) == {0}
    assert failed(lb) == 0


def test_a_connection_that_is_refused_is_tried_on_another_replica(http: Any, stubs: Stubs, dead: str) -> None:
    """A POST too, and one whose body is a generator: nothing of it was sent."""

    def body() -> Iterator[bytes]:
        yield b"a generator"

    async def abody() -> Any:
        yield b"a generator"

    lb = LoadBalancer([dead, stubs[0].url], policy="round_robin", outlier_detection=False, retry=PLENTY)
    with client(http, lb) as web:
        for content in (b"bytes", body(), b"bytes", body()):
            assert web.post("/", content=content).json()["replica"] == "one"

    async def main() -> None:
        async with aclient(http, lb) as web:
            for content in (b"bytes", abody(), b"bytes", abody()):
                assert (await web.post("/", content=content)).json()["replica"] == "one"

    asyncio.run(main())
    assert lb.stats().replicas[dead].failed == lb.stats().retries > 0
    assert set(lb.load.values()) == {0}


def test_when_no_replica_can_be_reached_the_clients_own_error_is_raised(http: Any, dead: str) -> None:
    lb = LoadBalancer([dead])
    with client(http, lb) as web, pytest.raises(http.ConnectError):
        web.get("/")

    async def main() -> None:
        async with aclient(http, lb) as web:
            with pytest.raises(http.ConnectError):
                await web.get("/")

    asyncio.run(main())
    assert lb.load == {dead: 0}


def test_a_server_error_is_tried_again_only_where_that_is_safe(http: Any, stubs: Stubs) -> None:
    stubs[0].answer_all(fails(500))
    lb = LoadBalancer(urls(stubs), policy="round_robin", outlier_detection=False, retry=PLENTY)
    with client(http, lb) as web:
        assert {web.get("/").status_code for _ in range(4)} == {200}
        assert sorted(web.post("/", content=b"x").status_code for _ in range(4)) == [200, 200, 500, 500]
    assert set(lb.load.values()) == {0}
    assert lb.stats().replicas[stubs[0].url].failed >= 3
    lb = LoadBalancer(urls(stubs), policy="round_robin", outlier_detection=False, retry=PLENTY)
    with client(http, lb, idempotent=True) as web:
        assert {web.post("/", content=b"x").status_code for _ in range(4)} == {200}


def test_a_replica_that_declines_is_replaced_by_another(http: Any, stubs: Stubs) -> None:
    stubs[0].answer_all(fails(503))
    lb = LoadBalancer(urls(stubs), policy="round_robin", outlier_detection=False, retry=PLENTY)
    with client(http, lb) as web:
        assert {web.post("/", content=b"x").status_code for _ in range(4)} == {200}
        # A generator cannot be sent again: the caller gets the answer.
        codes = [web.post("/", content=iter([b"x"])).status_code for _ in range(2)]
    assert sorted(codes) == [200, 503]

    async def main() -> None:
        async with aclient(http, lb) as web:
            assert {(await web.post("/", content=b"x")).status_code for _ in range(2)} == {200}

    asyncio.run(main())
    assert set(lb.load.values()) == {0}


def test_the_clients_own_mistakes_count_against_nobody(http: Any, stubs: Stubs) -> None:
    lb = LoadBalancer(urls(stubs))
    with client(http, lb) as web:
        for _ in range(20):
            assert web.post("/", headers=header(fails(422))).status_code == 422
    assert set(lb.states.values()) == {State.READY}
    assert failed(lb) == 0


def test_a_stream_holds_its_slot_until_it_is_read_or_closed(http: Any, stubs: Stubs) -> None:
    lb = LoadBalancer([stubs[0].url], concurrency=1)
    with client(http, lb) as web:
        with web.stream("GET", "/", headers=header(endless())) as response:
            parts = response.iter_raw()
            assert next(parts)
            assert lb.load == {stubs[0].url: 1}
        assert lb.load == {stubs[0].url: 0}
        with web.stream("GET", "/") as response:
            assert lb.load == {stubs[0].url: 1}
            response.read()
            assert lb.load == {stubs[0].url: 0}

    async def main() -> None:
        async with aclient(http, lb) as web:
            async with web.stream("GET", "/", headers=header(endless())) as response:
                async for _ in response.aiter_raw():
                    break
                assert lb.load == {stubs[0].url: 1}
            assert lb.load == {stubs[0].url: 0}
            async with web.stream("GET", "/") as response:
                await response.aread()
                assert lb.load == {stubs[0].url: 0}

    asyncio.run(main())
    assert failed(lb) == 0


def test_a_stream_that_breaks_counts_against_its_replica(http: Any, stubs: Stubs) -> None:
    lb = LoadBalancer([stubs[0].url], outlier_detection=False)
    broken = header(raw(SSE_HEAD + chunk("data: 0\n\n"), ["reset"]))
    with client(http, lb) as web, pytest.raises(http.TransportError):
        web.get("/", headers=broken)
    assert failed(lb) == 1

    async def main() -> None:
        async with aclient(http, lb) as web:
            with pytest.raises(http.TransportError):
                await web.get("/", headers=broken)

    asyncio.run(main())
    assert failed(lb) == 2
    assert lb.load == {stubs[0].url: 0}


def test_a_cancelled_request_gives_its_slot_back(http: Any, stubs: Stubs) -> None:
    lb = LoadBalancer([stubs[0].url])
    before = len(stubs[0].events)

    async def main() -> None:
        async with aclient(http, lb) as web:
            task = asyncio.create_task(web.get("/", headers=header([["body"], ["gate", "never"]])))
            await asyncio.to_thread(stubs[0].wait, "waiting", 1, before)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert (lb.load, failed(lb)) == ({stubs[0].url: 0}, 0)


def test_a_full_fleet_refuses_after_the_clients_own_pool_timeout(http: Any, stubs: Stubs) -> None:
    lb = LoadBalancer([stubs[0].url], concurrency=1)
    held = lb.route_request()
    timeout = http.Timeout(WAIT_TIMEOUT_SECONDS, pool=0.01)
    with client(http, lb) as web, pytest.raises(Refused) as refused:
        web.get("/", timeout=timeout)
    assert isinstance(refused.value, http.TransportError)
    assert refused.value.reason == "queue_timeout"
    assert str(refused.value.request.url) == "http://model/"

    async def main() -> None:
        async with aclient(http, lb) as web:
            with pytest.raises(http.TransportError, match="No replica became free"):
                await web.get("/", timeout=timeout)
            waiting = asyncio.create_task(web.get("/"))
            while not lb.waiting:
                await asyncio.sleep(0.001)
            lb.complete_request(held)
            assert (await waiting).status_code == 200

    asyncio.run(main())
    assert lb.load == {stubs[0].url: 0}


def test_describe_says_what_is_known_of_a_request(http: Any, stubs: Stubs) -> None:
    lb = LoadBalancer(urls(stubs), policy="consistent_hash")

    def describe(request: Any) -> dict[str, Any]:
        asked = json.loads(request.content)
        return {"features": [len(request.content)], "key": asked["user"], "timeout": 60.0}

    with client(http, lb, describe=describe) as web:
        for user in "abcdef":
            assert len({web.post("/", json={"user": user}).json()["replica"] for _ in range(3)}) == 1
    with client(http, lb, describe=lambda _: {"wait": 1}) as web, pytest.raises(OptionError, match="'wait'"):
        web.get("/")
    assert set(lb.load.values()) == {0}


@pytest.mark.parametrize("id", ["gpu-a", "gpu-a:8000", "ftp://gpu-a", "http://", "http://u:p@gpu-a", "http://a/?q=1"])
def test_a_replica_that_is_no_url_is_named(http: Any, id: str) -> None:
    with pytest.raises(OptionError, match="must be a URL such as"):
        transports(http).Transport(LoadBalancer([id]))


def test_hedges_stay_out_of_the_transport(http: Any, stubs: Stubs) -> None:
    """A response is a stream: the transport starts no second one, whatever the core would like."""
    lb, engine = with_engine(urls(stubs), hedge=HedgeOptions(enabled=True, quantile=0.5, budget=1.0))
    for _ in range(200):
        lb.complete_request(lb.route_request(), latency=0.001)
    engine.pool.hedge_budget.seconds_left = 10.0
    with client(http, lb) as web, web.stream("GET", "/", headers=header(endless())) as response:
        parts = response.iter_raw()
        next(parts)
        for _ in range(20):
            assert sum(lb.load.values()) == 1
    assert (lb.stats().hedges, set(lb.load.values())) == (0, {0})
