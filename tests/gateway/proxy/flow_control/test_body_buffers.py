"""Bodies that arrive slowly have a minimum rate and a total time, and are evicted without room (body_buffers.py)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from steelyard.gateway.http.forwarding import client_network

from ...loop import Wire
from ...reading import answer, chunked, read_answer, request
from ...stage import Stage

MODEL = "models: {m: {replicas: [{url: 'http://a:1'}]}}"
TIGHT = f"{{limits: {{total_buffer_bytes: 1000, replay_bytes: 600}}, timeouts: {{body: 100s}}, {MODEL}}}"
ALONE, TOGETHER = ("192.0.2.1", 1), ("198.51.100.7", 1)


def upload(stage: Stage, size: int, length: int = 5000, peer: object = ALONE) -> Wire:
    client = stage.client(peer)
    client.says(request("POST /", f"content-length: {length}"))
    client.says(b"x" * size)
    return client


def drip(stage: Stage, clients: list[Wire], seconds: float, size: int = 1, every: float = 0.5) -> None:
    for _ in range(int(seconds / every)):
        stage.pass_time(every)
        for client in clients:
            if not client.closed and not client.transport.eof_heard:
                client.says(b"x" * size)


def reason(client: Wire) -> str:
    heard = client.hears()
    return read_answer(heard)["steelyard-reason"] if heard else ""


@pytest.mark.parametrize("framing", ["sized", "chunked", "extensions"])
def test_a_body_that_drips_is_refused_though_each_byte_comes_in_time(
    staged: Callable[..., Stage], framing: str
) -> None:
    stage = staged(f"{{timeouts: {{body: 5s}}, {MODEL}}}")
    client = stage.client()
    how = "content-length: 5000" if framing == "sized" else "transfer-encoding: chunked"
    client.says(request("POST /", how))
    piece = {"sized": b"x", "chunked": chunked(b"x")[:-5], "extensions": b"1;ab=c\r\nx\r\n"}[framing]
    for _ in range(10):
        stage.pass_time(1.0)
        if client.transport.eof_heard:
            break
        client.says(piece)
    assert reason(client) == "body_too_slow"
    stage.pass_time(3)
    stage.check_idle(counted=1)


def test_a_burst_does_not_pay_for_dripping_later(staged: Callable[..., Stage]) -> None:
    stage = staged(f"{{timeouts: {{body: 5s}}, {MODEL}}}")
    client = upload(stage, 100_000, 200_000)
    drip(stage, [client], 8, every=1.0)
    assert reason(client) == "body_too_slow"


def test_a_body_may_pause_for_as_long_as_timeouts_body_says(staged: Callable[..., Stage]) -> None:
    stage = staged(f"{{timeouts: {{body: 5s}}, {MODEL}}}")
    client = upload(stage, 1000, 2000)
    stage.pass_time(4.5)
    client.says(b"x" * 1000)
    stage.replica().says(answer())
    assert read_answer(client.hears()).status == 200
    stage.check_idle(counted=1)


def test_any_rate_is_allowed_if_so_configured(staged: Callable[..., Stage]) -> None:
    stage = staged(f"{{limits: {{min_body_rate: 0}}, timeouts: {{body: 5s}}, {MODEL}}}")
    client = upload(stage, 0, 30)
    drip(stage, [client], 30, every=1.0)
    stage.replica().says(answer())
    assert read_answer(client.hears()).status == 200


def test_a_body_has_a_total_time(staged: Callable[..., Stage]) -> None:
    stage = staged(f"{{timeouts: {{body_total: 20s}}, {MODEL}}}")
    client = upload(stage, 0, 1 << 20)
    drip(stage, [client], 25, 1000)
    assert reason(client) == "body_timeout"


def test_time_in_which_it_is_not_read_is_not_counted(staged: Callable[..., Stage]) -> None:
    """It waits for a replica, with as much of its body as may be kept."""
    limits = "limits: {replay_bytes: 1000}, timeouts: {body: 5s, body_total: 10s}"
    stage = staged(
        f"{{{limits}, models: {{m: {{concurrency: 1, queue_timeout: 100s, replicas: [{{url: 'http://a:1'}}]}}}}}}"
    )
    first = stage.client()
    first.says(request())
    busy = stage.replica()
    client = upload(stage, 1500, 2000)
    stage.pass_time(50)
    busy.says(answer())
    client.says(b"x" * 500)
    stage.replica().says(answer(b"late"))
    assert read_answer(client.hears()).body == b"late"
    stage.check_idle(counted=2)


def test_without_room_the_slowest_upload_goes_first(staged: Callable[..., Stage]) -> None:
    stage = staged(TIGHT)
    slow, slower, fast = upload(stage, 350), upload(stage, 300), upload(stage, 20)
    for _ in range(8):
        drip(stage, [slow], 0.5, 3)
        drip(stage, [fast], 0.5, 20)
    assert stage.proxy.held < 1000
    other = upload(stage, 300, 300 + 1)
    assert reason(slower) == "body_evicted"
    assert (reason(slow), reason(fast), reason(other)) == ("", "", "")
    other.says(b"x")
    stage.replica().says(answer(b"ok"))
    assert read_answer(other.hears()).body == b"ok"


def test_uploads_that_keep_coming_are_not_evicted(staged: Callable[..., Stage]) -> None:
    stage = staged(TIGHT)
    clients = [upload(stage, 250, 560) for _ in range(3)]
    drip(stage, clients, 1.5, 25)
    other = upload(stage, 200)
    assert reason(other) == "buffers_full"
    assert [reason(client) for client in clients] == [""] * 3


def test_who_holds_more_than_its_share_makes_room_for_others_at_any_speed(staged: Callable[..., Stage]) -> None:
    stage = staged(TIGHT)
    clients = [upload(stage, 300, 600, peer=TOGETHER) for _ in range(3)]
    other = upload(stage, 200, peer=ALONE)
    assert [reason(client) for client in clients].count("body_evicted") == 1
    assert reason(other) == ""
    more = upload(stage, 400, peer=TOGETHER)
    assert reason(more) == "buffers_full", "it holds more than its share, and its own are not slow"
    assert reason(other) == ""


def test_what_addresses_hold_is_forgotten_with_the_bodies(staged: Callable[..., Stage]) -> None:
    stage = staged(TIGHT)
    clients = [upload(stage, 100, peer=peer) for peer in (ALONE, TOGETHER)]
    assert stage.proxy.buffers.by_address == {"192.0.2.1": 100, "198.51.100.7": 100}
    for client in clients:
        client.breaks()
    assert stage.proxy.buffers.by_address == {}
    stage.pass_time(1)
    assert not stage.proxy.buffers.uploads
    stage.check_idle()


def test_a_client_is_an_ipv4_address_or_a_network_of_ipv6() -> None:
    assert client_network("192.0.2.1") == client_network("::ffff:192.0.2.1") == "192.0.2.1"
    assert client_network("2001:db8::1") == client_network("2001:db8::ffff:1") != client_network("2001:db8:0:1::1")
    assert client_network("fe80::1%eth0") == client_network("fe80::2%eth0")
