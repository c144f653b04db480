"""Two attempts at once: one answers, the other is stopped, and the client hears of one only."""

import errno
from collections.abc import Callable

import pytest

from ...loop import Wire
from ...reading import answer, read_answer, request
from ...stage import Stage

CONFIG = """
models:
  m:
    policy: least_connections
    hedge: {enabled: true, budget: 100%}
    retry: {max_attempts: 2}
    replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]
"""
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Race:
    """A fleet that knows that requests take 10 ms, and one that is late."""

    def __init__(self, stage: Stage, line: str = "GET /slow", body: bytes | None = None) -> None:
        self.stage = stage
        teacher = stage.client()
        for _ in range(50):
            teacher.says(request())
            replica = stage.replica()
            stage.pass_time(0.01)
            replica.says(answer())
        teacher.ends()
        for wire in stage.loop.wires:
            wire.hears()
        self.before = stage.counted()
        self.client = stage.client()
        self.client.says(request(line, body=body))
        self.first = stage.replica()
        self.first.hears()
        self.body = body

    def second(self) -> Wire:
        """The hedge, once it is sent."""
        self.stage.pass_time(2)
        while self.stage.dialling:
            self.stage.accept()
        (hedge,) = [wire for wire in self._busy() if wire is not self.first]
        assert hedge.place != self.first.place
        return hedge

    def _busy(self) -> list[Wire]:
        return [wire for wire in self.stage.loop.wires if wire.transport.protocol in self.stage.proxy.active]

    def over(self) -> None:
        self.stage.check_idle(counted=self.before + 1)


@pytest.fixture
def race(staged: Callable[..., Stage]) -> Race:
    return Race(staged(CONFIG))


def test_the_second_wins(race: Race) -> None:
    hedge = race.second()
    hedge.says(answer(b"second"))
    response = read_answer(race.client.hears())
    assert (response.body, response["steelyard-replica"]) == (b"second", hedge.place)
    assert race.first.closed
    race.over()


def test_the_first_wins(race: Race) -> None:
    hedge = race.second()
    race.first.says(answer(b"first"))
    assert read_answer(race.client.hears()).body == b"first"
    assert hedge.closed
    race.over()


def test_the_first_wins_while_the_second_connects(staged: Callable[..., Stage]) -> None:
    race = Race(staged(CONFIG))
    for wire in race.stage.loop.wires:
        if wire is not race.first:
            wire.ends()
    race.stage.pass_time(1)
    dial = race.stage.dial()
    race.first.says(answer(b"first"))
    assert read_answer(race.client.hears()).body == b"first"
    assert dial.accept().hears() == b""
    race.over()


@pytest.mark.parametrize("loser", ["first", "second"])
@pytest.mark.parametrize("how", ["breaks", "error", "nonsense"])
def test_one_fails_and_the_other_goes_on(race: Race, loser: str, how: str) -> None:
    hedge = race.second()
    bad, good = (race.first, hedge) if loser == "first" else (hedge, race.first)
    if how == "breaks":
        bad.breaks()
    else:
        bad.says(answer(b"", status="500 Broken") if how == "error" else b"?\r\n\r\n")
    assert race.client.hears() == b""
    good.says(answer(b"good"))
    assert read_answer(race.client.hears()).body == b"good"
    race.over()


def test_both_fail(race: Race) -> None:
    hedge = race.second()
    race.first.breaks()
    hedge.says(answer(b"last words", status="500 Broken"))
    received = race.client.hears()
    if not received:  # it may be tried once more
        race.stage.replica().says(answer(b"last words", status="500 Broken"))
        received = race.client.hears()
    assert read_answer(received).status == 500
    race.over()


@pytest.mark.parametrize("problem", [errno.ECONNREFUSED, errno.EMFILE])
def test_a_second_that_cannot_be_sent_does_no_harm(race: Race, problem: int) -> None:
    for wire in race.stage.loop.wires:
        if wire is not race.first:
            wire.ends()
    race.stage.pass_time(0.5)
    race.stage.dial().fail(OSError(problem, "no"))
    assert not race.first.closed
    race.first.says(answer(b"first"))
    assert read_answer(race.client.hears()).body == b"first"
    race.over()


def test_the_client_leaves_both(race: Race) -> None:
    hedge = race.second()
    race.client.breaks()
    assert race.first.closed
    assert hedge.closed
    race.over()


def test_the_deadline_ends_both(staged: Callable[..., Stage]) -> None:
    race = Race(staged(CONFIG.replace("policy:", "timeout: 3s\n    policy:")))
    hedge = race.second()
    race.stage.pass_time(2)
    assert read_answer(race.client.hears())["steelyard-reason"] == "deadline"
    assert race.first.closed
    assert hedge.closed
    race.over()


@pytest.mark.parametrize(
    "said", [STREAM, STREAM + b"5\r\nhello\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"]
)
def test_an_answer_that_has_begun_is_not_hedged(race: Race, said: bytes) -> None:
    race.first.says(said)
    race.stage.pass_time(60)
    assert race.stage.dialling == []
    assert [wire for wire in race.stage.loop.wires if wire is not race.first and wire.hears()] == []
    race.first.says(b"last" if b"length" in said else b"0\r\n\r\n")
    assert read_answer(race.client.hears()).whole
    race.over()


def test_the_second_has_the_whole_request(staged: Callable[..., Stage]) -> None:
    race = Race(staged(CONFIG), "PUT /slow", b"hello")
    hedge = race.second()
    assert hedge.hears().endswith(b"\r\n\r\nhello")
    hedge.says(answer(b"ok"))
    race.over()


def test_what_may_not_run_twice_is_not_hedged(staged: Callable[..., Stage]) -> None:
    race = Race(staged(CONFIG), "POST /slow", b"hello")
    race.stage.pass_time(60)
    assert [wire for wire in race.stage.loop.wires if wire is not race.first and wire.hears()] == []
    race.first.says(answer())
    race.over()


def test_the_first_may_take_over_after_a_bad_interim_of_the_second(race: Race) -> None:
    hedge = race.second()
    hedge.says(b"HTTP/1.1 103 Early Hints\r\nlink: second\r\n\r\n")
    race.first.says(answer(b"first"))
    assert race.client.hears().endswith(b"first")
    assert hedge.closed
    race.over()


def test_the_replica_is_removed_while_both_run(race: Race) -> None:
    hedge = race.second()
    race.stage.reload(
        CONFIG.replace(f", {{url: 'http://{hedge.place}'}}", "").replace(f"{{url: 'http://{hedge.place}'}}, ", "")
    )
    hedge.says(answer(b"from one that is gone"))
    assert read_answer(race.client.hears()).body == b"from one that is gone"
    assert race.first.closed
    race.over()
