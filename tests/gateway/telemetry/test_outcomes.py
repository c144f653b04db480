"""What a worker reports of the attempts at each replica: how they ended, and the last error."""

from collections.abc import Callable

from steelyard.gateway.telemetry.model_stats import MAX_STATUSES
from steelyard.gateway.worker.worker_report import worker_report
from steelyard.link.messages import ReplicaReport

from ..reading import answer, request
from ..stage import Stage

TWO = "models: {m: {policy: round_robin, replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]}}"
ONE = "models: {m: {retry: {max_attempts: 1}, replicas: [{url: 'http://a:1'}]}}"


def seen(stage: Stage, id: str = "a:1") -> ReplicaReport:
    reported = worker_report(stage.proxy, stage.loop.now, decides=True)
    return next(replica for replica in reported.replicas if replica.id == id)


def test_attempts_that_a_retry_hid_are_reported_with_the_last_error(staged: Callable[..., Stage]) -> None:
    stage = staged(TWO)
    client = stage.client()
    client.says(request())
    first = stage.replica()
    first.says(answer(b"sorry", status="500 Broken"))
    second = stage.replica()
    second.says(answer(b"fine"))
    stage.loop.pass_time(3.0)
    failed, well = seen(stage, first.place), seen(stage, second.place)
    assert (failed.outcomes, failed.last_error) == ({"ok": 0, "error": 1}, "HTTP 500")
    assert 3.0 <= failed.last_error_age < 10.0
    assert (well.outcomes, well.last_error) == ({"ok": 1}, "")


def test_attempts_by_outcome(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)

    def attempt(ends: Callable[[], None]) -> None:
        client = stage.client()
        client.says(request())
        ends()
        client.transport.abort()
        stage.loop.settle()

    attempt(lambda: stage.replica().says(answer(b"fine")))
    attempt(lambda: stage.replica().says(answer(b"what?", status="404 No")))
    attempt(lambda: stage.replica().says(answer(b"busy", status="503 Busy")))
    assert seen(stage).last_error == "HTTP 503"
    attempt(lambda: stage.replica().says(b"nonsense\r\n\r\n"))
    assert seen(stage).last_error == "replica_invalid_response"
    attempt(lambda: stage.replica().breaks())
    assert seen(stage).last_error == "replica_failed"
    attempt(lambda: stage.replica() and None)  # its client leaves
    assert seen(stage).outcomes == {"ok": 1, "client_error": 1, "overloaded": 1, "connection_lost": 2, "cancelled": 1}
    assert seen(stage).dispatched == 6


def test_an_answer_that_breaks_off_is_a_truncated_attempt(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    stage.client().says(request())
    replica = stage.replica()
    replica.says(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
    replica.breaks()
    assert (seen(stage).outcomes, seen(stage).last_error) == ({"ok": 0, "truncated": 1}, "truncated")


def test_requests_are_counted_by_http_status(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    for status in ("200 OK", "200 OK", "404 No", "503 Busy"):
        stage.client().says(request())
        stage.replica().says(answer(b"said", status=status))
    leaves = stage.client()
    leaves.says(request())
    stage.replica()
    leaves.transport.abort()
    stage.loop.settle()
    (model,) = worker_report(stage.proxy, stage.loop.now, decides=True).models
    assert model.statuses == {200: 2, 404: 1, 503: 1, 0: 1}


def test_statuses_that_a_replica_makes_up_are_counted_by_class(staged: Callable[..., Stage]) -> None:
    stage = staged(ONE)
    account = stage.account("m")
    for status in range(400, 500):
        account.count_status(status)
    assert len(account.statuses) == MAX_STATUSES + 1
    assert account.statuses[4] == 100 - MAX_STATUSES
