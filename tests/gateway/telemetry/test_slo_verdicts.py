"""How each request stands to the SLO of its model, and whose fault it is when that is not kept."""

from collections.abc import Callable

import pytest

from steelyard.control.history.slices import counts_by_verdict
from steelyard.core.slo.verdicts import MAX_TENANTS, OTHER_TENANTS

from ..loop import Wire
from ..reading import answer, chunked, request
from ..stage import Stage

CONFIG = """
tenant_header: x-tenant
limits: {replay_bytes: 1KiB}
models:
  m:
    slo: {latency: 1s, availability: 99, tenants: {acme: {latency: 5s}}}
    retry: {max_attempts: 1}
    timeout: 60s
    concurrency: 1
    max_queue: 1
    queue_timeout: 30s
    replicas: [{url: 'http://a:1'}]
  s:
    slo: {first_byte: 1s, latency: 2s}
    retry: {max_attempts: 1}
    replicas: [{url: 'http://s:1'}]
  r:
    slo: {latency: 1s}
    retry: {max_attempts: 2, budget: 100%}
    replicas: [{url: 'http://r:1'}, {url: 'http://r:2'}]
  none:
    slo: {latency: 1s}
    replicas: []
"""


STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def judged(stage: Stage, model: str = "m", tenant: str = "") -> dict[str, int]:
    stats = stage.account(model).tenants.get(tenant)
    if stats is None:
        return {}
    return counts_by_verdict(stats.counts)


def asks(stage: Stage, model: str = "m", *headers: str) -> Wire:
    client = stage.client()
    client.says(request("POST /", f"steelyard-model: {model}", *headers, body=b""))
    return client


def says(status: str = "200 OK", after: float = 0.0) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        asks(stage)
        replica = stage.replica()
        stage.pass_time(after)
        replica.says(answer(b"", status=status))

    return play


def breaks(stage: Stage) -> None:
    asks(stage)
    stage.replica().breaks()


def truncates(stage: Stage) -> None:
    asks(stage)
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")
    stage.replica().breaks()


def unreachable(stage: Stage) -> None:
    asks(stage)
    stage.dial().fail()


def deadline(stage: Stage) -> None:
    asks(stage, "m", "steelyard-timeout-ms: 10000")
    stage.replica()
    stage.pass_time(11.0)


def leaves(after: float) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        client = asks(stage)
        stage.replica()
        stage.pass_time(after)
        client.breaks()

    return play


def leaves_half_way(stage: Stage) -> None:
    client = asks(stage)
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
    stage.pass_time(3.0)
    client.breaks()


def uploads_slowly(status: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        client = stage.client()
        client.says(request("POST /", "steelyard-model: m", "content-length: 1"))
        stage.pass_time(3.0)
        client.says(b"x")
        stage.replica().says(answer(b"", status=status))

    return play


def streams_slowly(ends: bool) -> Callable[[Stage], None]:
    """A body that is too large to be kept goes straight through, as slowly as it comes."""

    def play(stage: Stage) -> None:
        client = stage.client()
        client.says(request("POST /", "steelyard-model: m", "content-length: 3000") + b"x" * 2000)
        replica = stage.replica()
        stage.pass_time(3.0)
        if ends:
            client.says(b"x" * 1000)
            stage.pass_time(0.5)
            replica.says(answer(b""))
        else:
            client.breaks()

    return play


def holds_up_the_upload(stage: Stage) -> None:
    client = stage.client()
    client.says(request("POST /", "steelyard-model: m", "content-length: 3000") + b"x" * 2000)
    replica = stage.replica()
    replica.transport.protocol.pause_writing()
    stage.pass_time(3.0)
    replica.transport.protocol.resume_writing()
    client.says(b"x" * 1000)
    replica.says(answer(b""))


def reads_slowly(before: float, ends: bool = True) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        client = asks(stage)
        replica = stage.replica()
        stage.pass_time(before)
        replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab")
        client.transport.protocol.pause_writing()
        stage.pass_time(3.0)
        if ends:
            client.transport.protocol.resume_writing()
            replica.says(b"cde")
        else:
            client.breaks()

    return play


def stops(stage: Stage) -> None:
    asks(stage)
    stage.replica()
    stage.proxy.abort_all()


def tunnels(after: float) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        asks(stage, "m", "connection: upgrade", "upgrade: x")
        replica = stage.replica()
        stage.pass_time(after)
        replica.says(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
        stage.pass_time(200.0)
        replica.breaks()

    return play


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        (says(), "met"),
        (says(after=0.9), "met"),
        (says("302 There"), "met"),
        (says(after=1.1), "late/replica"),
        (says("404 No"), "failed/client"),
        (says("404 No", after=3.0), "failed/client"),
        (says("429 Slow"), "failed/overload"),
        (says("500 Broken"), "failed/replica"),
        (says("503 Not now"), "failed/replica"),
        (breaks, "failed/replica"),
        (truncates, "failed/replica"),
        (unreachable, "failed/replica"),
        (deadline, "failed/replica"),
        (leaves(0.5), "abandoned/client"),
        (leaves(3.0), "late/replica"),
        (leaves_half_way, "late/replica"),
        (uploads_slowly("200 OK"), "late/client"),
        (uploads_slowly("500 Broken"), "failed/replica"),
        (streams_slowly(ends=True), "late/client"),
        (streams_slowly(ends=False), "late/client"),
        (holds_up_the_upload, "late/replica"),
        (reads_slowly(0.5), "late/client"),
        (reads_slowly(0.5, ends=False), "late/client"),
        (reads_slowly(1.5), "late/replica"),
        (stops, "failed/gateway"),
        (tunnels(0.1), "met"),
        (tunnels(1.1), "late/replica"),
    ],
)
def test_each_end_is_judged_once(staged: Callable[..., Stage], play: Callable[[Stage], None], expected: str) -> None:
    stage = staged(CONFIG)
    play(stage)
    assert judged(stage) == {expected: 1}
    stage.check_idle(counted=1)


def test_who_waits_for_others_is_late_by_overload(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    asks(stage)
    asks(stage)
    stage.replica()
    stage.pass_time(0.8)
    stage.replica().says(answer(b""))
    stage.pass_time(0.8)
    stage.replica().says(answer(b""))
    assert judged(stage) == {"met": 1, "late/overload": 1}


def test_who_leaves_the_line_in_time_or_late(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    asks(stage)
    stage.replica()
    early = asks(stage)
    stage.pass_time(0.5)
    early.breaks()
    late = asks(stage)
    stage.pass_time(1.5)
    late.breaks()
    stage.replica().says(answer(b""))
    assert judged(stage) == {"abandoned/client": 1, "late/overload": 1, "late/replica": 1}


def test_refusals_by_overload(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    asks(stage)
    asks(stage)
    asks(stage)  # the line is full
    assert judged(stage) == {"refused/overload": 1}
    stage.replica()
    stage.pass_time(31.0)  # and the one in it has waited too long
    assert judged(stage) == {"refused/overload": 2}
    stage.replica().says(answer(b""))
    assert judged(stage) == {"refused/overload": 2, "late/replica": 1}


def test_who_waits_beyond_its_deadline_is_refused_by_overload(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    asks(stage)
    asks(stage, "m", "steelyard-timeout-ms: 5000")
    stage.replica()
    stage.pass_time(6.0)
    assert judged(stage) == {"refused/overload/total": 1}


def test_which_deadline_a_request_was_refused_for_is_counted_apart(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    asks(stage)
    asks(stage, "m", "x-slo-ttft-ms: 5000")
    stage.replica()
    stage.pass_time(6.0)
    assert judged(stage) == {"refused/overload/first_byte": 1}


def test_nobody_there_is_the_replicas_fault(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    asks(stage, "none")
    assert judged(stage, "none") == {"refused/replica": 1}


def test_the_first_byte_of_a_stream(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    for before, between, after in ((0.1, 0.1, 10.0), (1.5, 0.0, 0.0), (0.1, 1.5, 0.0)):
        asks(stage, "s")
        replica = stage.replica("1")
        stage.pass_time(before)
        replica.says(STREAM)  # its head is not it: many servers send that before they have anything to say
        stage.pass_time(between)
        replica.says(b"1\r\nx\r\n")
        stage.pass_time(after)
        replica.says(chunked(b"x"))
    assert judged(stage, "s") == {"met": 1, "late/replica": 2}
    asks(stage, "s")  # no stream: all of it counts
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n")
    stage.pass_time(3.0)
    replica.says(b"x")
    assert judged(stage, "s") == {"met": 1, "late/replica": 3}
    asks(stage, "s")
    stage.pass_time(1.5)
    replica.says(answer(b"x"))
    assert judged(stage, "s") == {"met": 2, "late/replica": 3}


def test_a_stream_that_says_nothing(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    asks(stage, "s")
    stage.replica().says(STREAM)
    stage.pass_time(1.5)
    stage.replica().says(b"0\r\n\r\n")
    assert judged(stage, "s") == {"late/replica": 1}


def test_who_leaves_a_stream_that_began_in_time(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    client = asks(stage, "s")
    stage.replica().says(STREAM + b"1\r\nx\r\n")
    stage.pass_time(30.0)
    client.breaks()
    assert judged(stage, "s") == {"abandoned/client": 1}


def test_who_leaves_a_stream_of_which_only_the_head_came(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    for patience in (0.9, 1.1):
        client = asks(stage, "s")
        stage.replica().says(STREAM)
        stage.pass_time(patience)
        client.breaks()
    assert judged(stage, "s") == {"abandoned/client": 1, "late/replica": 1}


def test_the_time_of_an_attempt_that_failed_is_the_replicas(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    stage.client().says(request("GET /", "steelyard-model: r"))
    stage.replica()
    stage.pass_time(2.0)
    stage.replica().breaks()
    stage.replica().says(answer(b""))
    assert judged(stage, "r") == {"late/replica": 1}


def test_tenants_have_their_own_slos(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    for tenant in ("acme", "other"):
        asks(stage, "m", f"x-tenant: {tenant}")
        stage.replica()
        stage.pass_time(2.0)
        stage.replica().says(answer(b""))
    assert judged(stage, "m", "acme") == {"met": 1}
    assert judged(stage, "m", "other") == {"late/replica": 1}


def test_tenants_beyond_those_counted_are_counted_together(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    for number in range(MAX_TENANTS + 5):
        asks(stage, "m", f"x-tenant: t{number}")
        stage.replica().says(answer(b""))
    asks(stage, "m", "x-tenant: acme")  # it has an SLO of its own
    stage.replica().says(answer(b""))
    assert judged(stage, "m", OTHER_TENANTS) == {"met": 5}
    assert judged(stage, "m", "acme") == {"met": 1}
    assert len(stage.account("m").tenants) == MAX_TENANTS + 2


def test_an_slo_that_changes_holds_for_what_ends_from_then_on(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    says(after=2.0)(stage)
    asks(stage)
    stage.replica()
    stage.pass_time(2.0)
    stage.reload(CONFIG.replace("latency: 1s, availability", "latency: 3s, availability"))
    stage.replica().says(answer(b""))
    assert judged(stage) == {"late/replica": 1, "met": 1}


def test_what_the_gateway_answers_itself_is_not_judged(staged: Callable[..., Stage]) -> None:
    stage = staged(CONFIG)
    stage.client().says(request("GET /v1/models"))
    asks(stage, "nobody")
    assert [account.tenants for account in stage.proxy.recorder.stats.values()] == [{}, {}, {}, {}]
