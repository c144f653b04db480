"""Several things in one turn of the loop: small writes are put off to its end, and no byte may change places for it."""

import pytest

from ...loop import Wire
from ...reading import answer, chunked, read_answer, read_answers, read_requests, request
from ...stage import Stage

STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def running(stage: Stage, count: int, *headers: str) -> list[tuple[Wire, Wire]]:
    """Requests that run, and a first write that opened the turn."""
    pairs = []
    for number in range(count):
        client = stage.client()
        client.says(request(f"GET /{number}", *headers))
        pairs.append((client, stage.accept()))
    return pairs


def test_everybody_has_an_answer_at_the_end_of_the_turn(stage: Stage) -> None:
    pairs = running(stage, 10)
    stage.loop.held = True
    for number, (_, replica) in enumerate(pairs):
        replica.says(answer(b"%d" % number))
    stage.loop.held = False
    for number, (client, _) in enumerate(pairs):
        assert read_answer(client.hears()).body == b"%d" % number
    stage.check_idle(counted=10)


@pytest.mark.parametrize("size", [1, 100_000])
def test_pieces_keep_their_order_small_and_large(stage: Stage, size: int) -> None:
    (first, other), (client, replica) = running(stage, 2)
    stage.loop.held = True
    other.says(STREAM + chunked(b"other"))
    replica.says(b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n")
    replica.says(STREAM)
    for piece in (b"1", b"2" * size, b"3"):
        replica.says(b"%x\r\n%b\r\n" % (len(piece), piece))
    replica.says(b"0\r\n\r\n")
    stage.loop.held = False
    hint, response = read_answers(client.hears())
    assert hint.status == 103
    assert response.body == b"1" + b"2" * size + b"3"
    assert read_answer(first.hears()).body == b"other"
    stage.check_idle(counted=2)


def test_the_last_bytes_come_before_the_end(stage: Stage) -> None:
    pairs = running(stage, 3, "connection: close")
    stage.loop.held = True
    for _, replica in pairs:
        replica.says(STREAM + chunked(b"last"))
    stage.loop.held = False
    for client, _ in pairs:
        assert read_answer(client.hears()).body == b"last"
        assert client.closed
        assert not client.cut_off
    stage.check_idle(counted=3)


def test_what_was_put_off_comes_before_a_refusal(stage: Stage) -> None:
    (_, other), (client, replica) = running(stage, 2)
    stage.loop.held = True
    other.says(answer())
    replica.says(answer(b"fine"))
    client.says(b"nonsense\r\n\r\n")
    stage.loop.held = False
    assert [message.status for message in read_answers(client.hears())] == [200, 400]
    stage.check_idle(counted=3)


def test_an_answer_that_breaks_off_in_the_turn_it_began(stage: Stage) -> None:
    (_, other), (client, replica) = running(stage, 2)
    stage.loop.held = True
    other.says(answer())
    replica.says(STREAM + b"5\r\nhel")
    replica.breaks()
    stage.loop.held = False
    assert not any(message.whole for message in read_answers(client.hears()))
    assert client.cut_off
    stage.check_idle(counted=2)


def test_many_requests_in_one_turn_reach_their_replica_whole(stage: Stage) -> None:
    pairs = running(stage, 5)
    for _, replica in pairs:
        replica.says(answer())
        replica.hears()
    stage.loop.held = True
    for number, (client, _) in enumerate(pairs):
        client.hears()
        client.says(request(f"PUT /{number}", body=b"%d" % number * 50))
    stage.loop.held = False
    for _, replica in pairs:
        (message,) = read_requests(replica.hears())
        assert message.body == message.first.split(" ")[1][1:].encode() * 50
        replica.says(answer(message.body))
    for number, (client, _) in enumerate(pairs):
        assert read_answer(client.hears()).body == b"%d" % number * 50
    stage.check_idle(counted=10)


def test_who_left_in_the_same_turn_holds_up_nobody(stage: Stage) -> None:
    pairs = running(stage, 4)
    stage.loop.held = True
    for _, replica in pairs:
        replica.says(answer(b"ok"))
    pairs[1][0].breaks()
    pairs[2][0].ends()
    stage.loop.held = False
    for client, _ in (pairs[0], pairs[3]):
        assert read_answer(client.hears()).body == b"ok"
    stage.check_idle(counted=4)


def test_a_stuck_client_is_noticed_though_its_bytes_were_put_off(stage: Stage) -> None:
    (_, other), (client, replica) = running(stage, 2)
    client.stops_reading()
    other.says(STREAM)
    replica.says(STREAM)
    for _ in range(40):
        stage.loop.held = True
        other.says(b"1\r\na\r\n")
        replica.says(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        stage.loop.held = False
        stage.loop.settle()
    assert replica.transport.paused
    assert client.transport.waiting_to_be_read < 300_000
    client.breaks()


def test_a_tunnel_ends_after_its_last_bytes(stage: Stage) -> None:
    client = stage.client()
    client.says(request("GET /", "connection: upgrade", "upgrade: websocket"))
    replica = stage.replica()
    replica.says(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
    client.hears()
    stage.loop.held = True
    for number in range(5):
        replica.says(b"%d" % number)
        client.says(b"%d" % number)
    replica.ends()
    stage.loop.held = False
    assert client.hears() == b"01234"
    assert client.transport.eof_heard
    assert replica.hears().endswith(b"\r\n\r\n01234")
