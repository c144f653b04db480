"""The access log: a line for each request, whatever it was, and never more than a line."""

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.config import AccessLogConfig as Settings
from steelyard.gateway.telemetry import log_file
from steelyard.gateway.telemetry.access_log import AccessLog
from steelyard.gateway.telemetry.access_log_json import milliseconds

from ..reading import answer, request
from ..stage import Stage

MODELS = """
tenant_header: x-tenant
models: {m: {policy: round_robin, replicas: [{url: 'http://a:1'}, {url: 'http://b:1'}]}}
"""


@pytest.fixture
def stage(staged: Callable[..., Stage]) -> Stage:
    return staged(MODELS)


def logged(stage: Stage, path: Path, kind: Any = "json") -> Callable[[], list[Any]]:
    stage.proxy.recorder.log = log = AccessLog(Settings(path=str(path), format=kind), stage.loop.time)

    def read() -> list[Any]:
        stage.proxy.recorder.log = None
        log.close()
        lines = path.read_text().split("\n")
        assert lines.pop() == "", "the last line has an end"
        return [json.loads(line) for line in lines] if kind == "json" else lines

    return read


def test_what_a_line_says(stage: Stage, tmp_path: Path) -> None:
    read = logged(stage, tmp_path / "log")
    client = stage.client()
    client.says(request("POST /v1/chat/completions?key=secret", "x-request-id: 7", "x-tenant: t", body=b"secret"))
    first = stage.replica()
    stage.pass_time(0.25)
    first.says(answer(b"", status="503 Busy"))
    second = stage.replica()
    stage.pass_time(0.5)
    second.says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
    stage.pass_time(0.25)
    second.says(b"ok")
    (line,) = read()
    assert (line["id"], line["client"], line["status"], line["outcome"]) == ("7", "192.0.2.7", 200, "ok")
    assert (line["method"], line["path"]) == ("POST", "/v1/chat/completions")
    assert (line["model"], line["tenant"], line["replica"], line["attempts"]) == ("m", "t", second.place, 2)
    assert (line["ms"], line["first_byte_ms"], line["bytes_in"]) == (1000.0, 750.0, 6)
    assert line["bytes_out"] >= 2
    assert line["slo"] == "met"
    assert "fault" not in line
    assert "secret" not in json.dumps(line)


def test_every_request_has_a_line_however_it_ends(stage: Stage, tmp_path: Path) -> None:
    read = logged(stage, tmp_path / "log")
    client = stage.client()
    for line, status in (("GET /ok", "200 OK"), ("GET /no", "404 No")):
        client.says(request(line))
        stage.replica().says(answer(b"", status=status))
    client.says(request("POST /broken", body=b"x"))
    stage.replica().breaks()
    client.says(request("GET /refused", "steelyard-timeout-ms: 0"))
    client.says(request("GET /left"))
    stage.replica()
    client.breaks()
    other = stage.client()
    other.says(request("POST /cut", body=b""))
    stage.replica().says(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n")
    stage.replica().breaks()
    ends = {line["path"]: (line["status"], line["outcome"], line.get("reason", "")) for line in read()}
    assert ends == {
        "/ok": (200, "ok", ""),
        "/no": (404, "client_error", ""),
        "/broken": (502, "failed", "replica_failed"),
        "/refused": (503, "refused", "deadline"),
        "/left": (0, "cancelled", "client_disconnected"),
        "/cut": (200, "failed", "truncated"),
    }


@pytest.mark.parametrize("kind", ["json", "text"])
def test_a_line_stays_a_line(stage: Stage, tmp_path: Path, kind: str) -> None:
    """Whatever a client writes: no newline, no control sequence for somebody's terminal."""
    read = logged(stage, tmp_path / "log", kind)
    client = stage.client()
    client.says(b'GET /%9b2J%85x HTTP/1.1\r\nhost: a\r\nx-request-id: "\x9b a=b\r\nx-tenant: \x85\t"\r\n\r\n')
    stage.replica().says(answer())
    lines = read()
    assert len(lines) == 1
    if kind == "text":
        assert lines[0].isprintable()
        assert not any(c.isspace() and c != " " for c in lines[0])
    else:
        assert lines[0]["path"] == "/%9b2J%85x"


def test_text_says_it_in_words(stage: Stage, tmp_path: Path) -> None:
    read = logged(stage, tmp_path / "log", "text")
    client = stage.client()
    client.says(request("GET /a", "x-request-id: 7"))
    stage.replica().says(answer())
    (line,) = read()
    words = line.split(" ")
    assert words[1:6] == ["192.0.2.7", "GET", "/a", "200", "ok"]
    assert {"model=m", "attempts=1", "id=7"} <= set(words)
    assert [word for word in words if word.startswith("replica=")]


def test_what_little_there_is_reaches_the_file_without_more(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "log"
    read = logged(stage, path)
    client = stage.client()
    client.says(request())
    stage.replica().says(answer())
    assert path.read_text() == ""
    stage.pass_time(0.5)
    log = stage.proxy.recorder.log
    assert log is not None
    assert log.json is not None
    assert not len(log.json), "it is the writer's now"
    assert len(read()) == 1


def test_many_lines_are_all_there_and_in_order(stage: Stage, tmp_path: Path) -> None:
    read = logged(stage, tmp_path / "log")
    client = stage.client()
    for number in range(500):
        client.says(request(f"GET /{number}"))
        stage.replica().says(answer())
    assert [line["path"] for line in read()] == [f"/{number}" for number in range(500)]


def test_it_is_appended_to_and_nobody_else_may_read_it(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(2):
        read = logged(stage, path)
        client = stage.client()
        client.says(request())
        stage.replica().says(answer())
        lines = read()
    assert len(lines) == 2
    assert path.stat().st_mode & 0o007 == 0


class Stuck:
    """A disk that takes nothing until it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.reached = threading.Event()
        write = os.write

        def slow(fd: int, data: bytes) -> int:
            self.reached.set()
            self.free.wait(300)
            return write(fd, data)

        monkeypatch.setattr("steelyard.gateway.telemetry.log_file.os.write", slow)


def test_a_disk_that_does_not_keep_up_costs_lines_not_memory(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "FLUSH_BYTES", 200 * log_file.MAX_BATCH_LINES)
    monkeypatch.setattr(log_file, "MAX_QUEUED_BATCHES", 2)
    disk = Stuck(monkeypatch)
    read = logged(stage, tmp_path / "log")
    client = stage.client()
    for number in range(20 * log_file.MAX_BATCH_LINES):
        client.says(request(f"GET /{number}"))
        stage.replica().says(answer())
    assert disk.reached.wait(30)
    disk.free.set()
    client.says(request("GET /after"))
    stage.replica().says(answer())
    lines = read()
    assert len(lines) <= 6 * log_file.MAX_BATCH_LINES
    assert len(lines) + sum(line.get("dropped", 0) for line in lines) == 20 * log_file.MAX_BATCH_LINES + 1


def test_a_log_that_is_closed_while_its_disk_hangs_leaves_the_descriptor_alone(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be a client's socket a moment later: the thread that writes to it must be over first."""
    disk = Stuck(monkeypatch)
    log = AccessLog(Settings(path=str(tmp_path / "log")), stage.loop.time)
    stage.proxy.recorder.log = log
    client = stage.client()
    client.says(request())
    stage.replica().says(answer())
    log.flush()
    assert disk.reached.wait(30)
    stage.proxy.recorder.log = None
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", lambda self, timeout=None: None)
        log.close()
    os.fstat(log.fd)
    disk.free.set()
    log.thread.join(30)
    assert not log.thread.is_alive()
    assert (tmp_path / "log").read_text().count("\n") == 1


def test_closing_does_not_wait_for_a_disk_that_hangs(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload closes the old log in the loop: with a full queue it must not stand still until the disk is back."""
    monkeypatch.setattr(log_file, "MAX_QUEUED_BATCHES", 1)
    disk = Stuck(monkeypatch)
    log = AccessLog(Settings(path=str(tmp_path / "log")), stage.loop.time)
    stage.proxy.recorder.log = log
    client = stage.client()
    for _ in range(3):
        client.says(request())
        stage.replica().says(answer())
        log.flush()
        assert disk.reached.wait(30)
    stage.proxy.recorder.log = None
    join = threading.Thread.join
    closing = threading.Thread(target=log.close, daemon=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", lambda self, timeout=None: None)
        closing.start()
        join(closing, 30.0)
        hangs = closing.is_alive()
    disk.free.set()
    join(closing, 30.0)
    assert not hangs


def test_a_full_disk_is_told_when_there_is_room_again(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = logged(stage, tmp_path / "log")
    log = stage.proxy.recorder.log
    assert log is not None
    full, tried = threading.Event(), threading.Event()
    full.set()
    write = os.write

    def disk(fd: int, data: bytes) -> int:
        tried.set()
        if full.is_set():
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data)

    monkeypatch.setattr("steelyard.gateway.telemetry.log_file.os.write", disk)
    client = stage.client()
    for number in range(3):
        client.says(request(f"GET /{number}"))
        stage.replica().says(answer())
    log.flush()
    assert tried.wait(30)
    while not log.unreported_drops:
        tried.wait(0.001)
    full.clear()
    client.says(request("GET /after"))
    stage.replica().says(answer())
    (line,) = read()
    assert (line["path"], line["dropped"]) == ("/after", 3)


def test_a_line_of_which_only_a_part_found_room_spoils_no_other(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    stage.proxy.recorder.log = log = AccessLog(Settings(path=str(path)), stage.loop.time)
    room = [10]
    write = os.write

    def disk(fd: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        wrote = write(fd, data[: room[0]])
        room[0] -= wrote
        return wrote

    monkeypatch.setattr("steelyard.gateway.telemetry.log_file.os.write", disk)
    client = stage.client()
    client.says(request("GET /torn"))
    stage.replica().says(answer())
    log.flush()
    while not log.unreported_drops:
        threading.Event().wait(0.001)
    room[0] = 1 << 20
    client.says(request("GET /after"))
    stage.replica().says(answer())
    stage.proxy.recorder.log = None
    log.close()
    torn, after = path.read_bytes().splitlines()
    assert len(torn) == 10
    line = json.loads(after)
    assert (line["path"], line["dropped"]) == ("/after", 1)


def test_a_line_is_its_own_requests_whatever_the_one_before_said(stage: Stage, tmp_path: Path) -> None:
    """What lines have in common is remembered: it must not be told of a request that differs."""
    read = logged(stage, tmp_path / "log")
    client = stage.client()
    asked = []
    for number in range(24):
        tenant, size = f"t{number % 3}", number % 4
        client.says(request(f"POST /{number % 2}", f"x-tenant: {tenant}", body=b"x" * size))
        replica = stage.replica()
        status = ("200 OK", "404 No")[number % 5 == 0]
        replica.says(answer(b"y" * (number % 7), status=status))
        outcome, slo = (("ok", "met"), ("client_error", "failed"))[number % 5 == 0]
        asked.append((f"/{number % 2}", int(status[:3]), outcome, slo, tenant, replica.place, size))
    names = ("path", "status", "outcome", "slo", "tenant", "replica", "bytes_in")
    lines = read()
    assert [tuple(line[name] for name in names) for line in lines] == asked
    assert lines[6]["bytes_out"] == lines[0]["bytes_out"] + 6


@pytest.mark.parametrize("id", ['say-"hi"', "back\\slash", "plain-1"])
def test_an_id_is_told_as_it_came(stage: Stage, tmp_path: Path, id: str) -> None:
    read = logged(stage, tmp_path / "log")
    client = stage.client()
    client.says(request("GET /a", f"x-request-id: {id}"))
    stage.replica().says(answer())
    assert read()[0]["id"] == id


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, b"0.00"),
        (0.00001, b"0.01"),
        (0.0999901, b"99.99"),
        (0.1, b"100.000"),
        (7.25, b"7250.000"),
        (90.0, b"90000.000"),
    ],
)
def test_milliseconds(seconds: float, expected: bytes) -> None:
    assert milliseconds(seconds) == expected
