"""Log lines, limits, notifications."""

from __future__ import annotations

import io
import json
import logging
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.control import process_resources
from steelyard.control.supervisor import log_setup
from steelyard.control.systemd import notify, notify_reloading
from steelyard.control.workers.stderr_tail import LogRateLimit
from steelyard.system import describe_exit

from .driving import config


@pytest.fixture
def loggers() -> Iterator[None]:
    """As they were before."""
    names = ("steelyard", "asyncio")
    before = {name: (logging.getLogger(name).handlers, logging.getLogger(name).propagate) for name in names}
    levels = {name: logging.getLogger(name).level for name in names}
    raising = logging.raiseExceptions
    yield
    logging.raiseExceptions = raising
    for name, (handlers, propagate) in before.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(levels[name])


def test_a_line_is_a_line_whatever_was_said(loggers: None) -> None:
    stream = io.StringIO()
    log_setup.configure_logging("text", stream)
    logger = logging.getLogger("steelyard.control")
    logger.info("listening on %s", "http://127.0.0.1:8080")
    logger.warning("two\nlines and \x1b[2J an escape")
    try:
        raise ValueError("what")
    except ValueError:
        logger.exception("it went wrong")
    first, second, third = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    listening on http://127.0.0.1:8080", first)
    assert "\x1b" not in second
    assert "two | lines" in second
    assert "it went wrong | Traceback" in third
    assert third.endswith("ValueError: what")


def test_json(loggers: None) -> None:
    stream = io.StringIO()
    log_setup.configure_logging("json", stream)
    logging.getLogger("steelyard.control").error("a\nb é", extra={"process_name": "worker 3"})
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["message"], entry["process"]) == ("error", "a\nb é", "worker 3")


def test_levels_have_colours_on_a_terminal_only(loggers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    log_setup.configure_logging("text", stream).error("no")
    assert "\x1b[31merror  \x1b[0m no" in stream.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    log_setup.configure_logging("text", stream).error("plain")
    assert "Z error   plain" in stream.getvalue()


def test_a_terminal_that_is_gone_is_no_reason_to_stop(loggers: None) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    log_setup.configure_logging("text", Gone()).error("nobody hears this")


def test_who_says_very_much_is_not_passed_on_whole() -> None:
    limit = LogRateLimit(0.0)
    assert sum(limit.admit(0.0) for _ in range(1000)) == 200
    assert limit.take_dropped() == 800
    assert limit.take_dropped() == 0
    assert sum(limit.admit(10.0 + n / 1000) for n in range(1000)) == 200 + 19
    assert sum(limit.admit(100.0 + n) for n in range(1000)) == 1000  # one a second is within it


def test_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
        assert process_resources.raise_open_files() == hard or hard == resource.RLIM_INFINITY
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_few_open_files_are_warned_of() -> None:
    made = config(more="limits: {connections: 1000}\n")
    assert process_resources.open_files_warning(made, 10_000) == ""
    warning = process_resources.open_files_warning(made, 1024)
    assert "limits.connections = 1000 may need 2128" in warning
    assert "set limits.connections to 448" in warning


@pytest.mark.parametrize("abstract", [False, True])
def test_notifications(abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"@{tmp_path}/n" if abstract else f"{tmp_path}/n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert notify("READY=1", "STATUS=well")
        assert manager.recv(100) == b"READY=1\nSTATUS=well"
        assert notify_reloading()
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(100))


@pytest.mark.parametrize("place", [None, "", "vsock:1", "/no/such/socket"])
def test_nobody_to_notify(place: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if place is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", place)
    assert not notify("READY=1")


def test_how_a_process_ended() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "signal SIGKILL"
    assert describe_exit(-40) in ("signal 40", "signal SIGRTMIN+6")
