"""The state tables of an exchange and of an upstream connection, and the one way to end each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steelyard.gateway
from steelyard.core.errors import IllegalTransitionError
from steelyard.gateway import exchange as exchanges
from steelyard.gateway.proxy import upstream_connection as connections

from ..stage import Stage

CONFIG = """
models:
  "*":
    replicas: [http://127.0.0.1:9001]
    health: {enabled: false}
"""
REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def table_of(module: Any) -> dict[str, dict[int, int]]:
    """What each event does, by its name: ON_UNTIL_CLOSE is `until close`."""
    events = {name: event for name, event in vars(module).items() if name.startswith("ON_")}
    imported = set() if module is exchanges else events.keys() & vars(exchanges).keys()
    return {name[3:].lower().replace("_", " "): events[name] for name in events.keys() - imported}


EVENTS = [(exchanges.ENDED, name, event) for name, event in sorted(table_of(exchanges).items())]
EVENTS += [(connections.CLOSED, name, event) for name, event in sorted(table_of(connections).items())]


@pytest.fixture
def stage(staged: Callable[..., Stage]) -> Stage:
    return staged(CONFIG)


@pytest.mark.parametrize(("last", "name", "event"), EVENTS, ids=[name for _, name, _ in EVENTS])
def test_what_is_not_in_the_table_raises(last: int, name: str, event: dict[int, int]) -> None:
    for state in range(last + 1):
        if state in event:
            assert 0 <= event[state] <= last
        else:
            with pytest.raises(IllegalTransitionError, match=name):
                event[state]


@pytest.mark.parametrize(("module", "last"), [(exchanges, exchanges.ENDED), (connections, connections.CLOSED)])
def test_every_state_is_reached_and_left_and_the_last_is_final(module: Any, last: int) -> None:
    reached = {event[state] for event in table_of(module).values() for state in event if event[state] != state}
    assert reached == set(range(1, last + 1)), "all but the first"
    for state in range(last):
        assert any(state in event and event[state] == last for event in table_of(module).values()), (
            "the end is always possible"
        )
    assert {event[last] for event in table_of(module).values() if last in event} <= {last}


def test_a_request_goes_through_its_states(stage: Stage) -> None:
    client = stage.client()
    client.says(REQUEST)
    exchange = next(iter(stage.proxy.clients)).exchange
    assert exchange is not None
    assert exchange.state == exchanges.DISPATCHED
    wire = stage.accept()
    upstream = exchange.upstream
    assert upstream is not None
    assert upstream.state == connections.AWAITING_HEAD
    wire.says(RESPONSE[:-1])
    assert exchange.state == exchanges.RESPONDING
    assert upstream.state == connections.BODY_SIZED
    wire.says(RESPONSE[-1:])
    assert exchange.state == exchanges.ENDED
    assert upstream.state == connections.IDLE
    assert (exchange.upstream, upstream.exchange) == (None, None)


def test_a_request_ends_once(stage: Stage) -> None:
    client = stage.client()
    client.says(REQUEST)
    exchange = next(iter(stage.proxy.clients)).exchange
    assert exchange is not None
    stage.replica().says(RESPONSE)
    with pytest.raises(IllegalTransitionError, match="end"):
        exchange.end("failed", "twice", stage.loop.now)
    stage.check_idle(counted=1)


def test_only_the_turn_writer_writes_to_a_transport() -> None:
    """One write path: what is written otherwise could overtake what waits for the end of the turn."""
    writes = re.compile(r"\btransport\.(write|writelines|write_eof)\(")
    root = Path(steelyard.gateway.__file__).parent
    found = {path.name for path in root.rglob("*.py") if writes.search(path.read_text(encoding="utf-8"))}
    assert found == {"turn_writer.py", "channel.py"}  # the latter to the balancer process


def test_a_clients_transport_is_closed_by_the_turn_writer_alone() -> None:
    """So what waits for the end of the turn goes out first."""
    closes = re.compile(r"\btransport\.(close|abort)\(")
    proxy = Path(steelyard.gateway.__file__).parent / "proxy"
    found = {path.name for path in proxy.glob("*.py") if closes.search(path.read_text(encoding="utf-8"))}
    assert found == {"turn_writer.py", "upstream_connection.py"}


def test_time_is_read_in_callbacks_alone() -> None:
    """The clock is the proxy's, and a callback passes on what it read: no module of the request path has its own."""
    root = Path(steelyard.gateway.__file__).parent
    reads = re.compile(r"\b(monotonic|perf_counter|time)\(\)")
    for room in ("http", "proxy", "routing"):
        for path in (root / room).glob("*.py"):
            assert not reads.search(path.read_text(encoding="utf-8")), path.name
