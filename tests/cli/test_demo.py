"""`steelyard demo` as a program: it serves, it shows, and nothing of it is left."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from steelyard.cli import main
from steelyard.core.errors import OptionError
from steelyard.demo import settings
from steelyard.demo.settings import Options, configuration
from tests.harness.processes import alive, descendants
from tests.harness.waiting import wait_until

REPLICAS = ("fast", "half", "quarter")
PROCESSES = len(REPLICAS) + 1  # and a worker
PAGE = Path(__file__).parents[2] / "docs" / "demo.md"


class Demo:
    def __init__(self, process: subprocess.Popen[bytes], out: int) -> None:
        self.process = process
        self.raw = b""
        self.said = ""
        self._out = out

    def read_until(self, pattern: str) -> str:
        """All that was said, as soon as the pattern is in it."""
        while not re.search(pattern, self.said) and self._read():
            pass
        assert re.search(pattern, self.said), f"it ended without {pattern!r}: {self.said}"
        return self.said

    def end(self, number: int | None = None) -> int:
        """The exit code; `said` is complete then."""
        if number is not None:
            self.process.send_signal(number)
        while self._read():
            pass
        return self.process.wait(60)

    def children(self, count: int = PROCESSES) -> list[int]:
        return wait_until(
            lambda: found if len(found := descendants(self.process.pid)) >= count else [], "its processes"
        )

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def _read(self) -> bool:
        try:
            data = os.read(self._out, 65536)
        except OSError:  # how a terminal ends
            data = b""
        self.raw += data
        self.said = re.sub(r"\x1b\[[0-9;]*m", "", self.raw.decode(errors="replace"))  # without colours
        return bool(data)


@contextmanager
def demo(*arguments: str, terminal: bool = False) -> Iterator[Demo]:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "steelyard", "demo", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(theirs)
    too_long = threading.Timer(120.0, process.kill)
    too_long.start()
    with process:
        try:
            yield Demo(process, ours)
        finally:
            too_long.cancel()
            process.kill()
            os.close(ours)


def gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(alive, pids)), f"{pids} end")


def requests_of(said: str) -> dict[str, int]:
    """The rows of the summary."""
    rows = re.findall(r"^(\w+) +\d× +([\d,]+) +[\d.]+ %", said, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in rows}


# ---------------------------------------------------------------------- as a program


def test_it_ends_by_itself_and_says_what_happened() -> None:
    with demo("--seconds", "3") as program:
        program.read_until("curl")
        children = program.children()
        assert program.end() == 0
        assert program.errors() == ""
    gone(children)
    assert re.search(
        r"^ +2\.\d s: \d+ requests, \d+/s, p50 .*, p99 .*, waiting \d+, failed 0; fast", program.said, re.M
    )
    total = re.search(r"^([\d,]+) requests in 3\.\d s with least_work, .*: 0 failed, p50 ", program.said, re.M)
    assert total is not None
    counts = requests_of(program.said)
    assert tuple(counts) == REPLICAS
    assert all(counts.values()), counts
    assert sum(counts.values()) == int(total[1].replace(",", ""))
    assert "steelyard serve --help" in program.said


def test_on_a_terminal_there_is_a_table_and_the_command_it_shows_works() -> None:
    with demo("--policy", "least_connections", terminal=True) as program:
        _, _, command = program.read_until(r"heavy rain and wind.*").partition("curl -i ")
        program.read_until("in flight")
        url, *rest = shlex.split(command.partition("}'")[0] + "}'")
        assert rest[0::2] == ["-H", "-d"]
        name, _, value = rest[1].partition(": ")
        with urllib.request.urlopen(urllib.request.Request(url, rest[3].encode(), {name: value}), timeout=60) as answer:
            assert answer.headers["steelyard-replica"] in REPLICAS
            (row,) = json.load(answer)["data"]
        assert max(row["embedding"]) == row["embedding"][0]  # it is about the weather
        for word in ("share", "work", "speed", "ready", "a second"):
            program.read_until(word)
        children = program.children()
        assert program.end(signal.SIGINT) == 0
        assert program.errors() == ""
    gone(children)
    assert "with least_connections" in program.said
    assert program.said.endswith("replicas of your own\r\n")
    assert program.said.rindex("\x1b[?25h") > program.said.rindex("\x1b[?25l")  # the cursor is back


def test_told_to_stop_before_it_has_begun() -> None:
    with demo() as program:
        program.read_until("starting")
        children = program.children(1)
        assert program.end(signal.SIGINT) == 0
        assert program.errors() == ""
    gone(children)
    assert program.said.endswith("stopped before it began\n")


def test_the_second_signal_ends_it_at_once() -> None:
    with demo(terminal=True) as program:
        said = program.read_until("in flight")
        children = program.children()
        for pid in re.findall(r"pid (\d+)", said):
            os.kill(int(pid), signal.SIGSTOP)  # so there are requests to wait for
        program.read_until(r"ready +[\d,]+ +\d+ % +█* +[1-9]\d* ")  # in flight
        program.process.send_signal(signal.SIGINT)
        program.read_until("waiting for the last answers")
        assert program.end(signal.SIGINT) == 130
    gone(children)


def test_when_it_is_killed_nothing_is_left() -> None:
    with demo("--workers", "2") as program:
        program.read_until("curl")
        children = program.children(PROCESSES + 1)
        program.process.kill()
        gone(children)


def test_failed_requests_are_told_and_make_the_exit_code_1() -> None:
    with demo() as program:
        said = program.read_until("curl")
        replicas = [int(pid) for pid in re.findall(r"pid (\d+)", said)]
        assert len(replicas) == 3
        for pid in replicas:
            os.kill(pid, signal.SIGKILL)
        program.read_until(r"failed [1-9]")
        assert program.end(signal.SIGTERM) == 1
    assert re.search(r"^\d+ failed: (502|503)", program.said, re.M)


# ---------------------------------------------------------------------- what cannot be


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_of_ones_own_must_be_free(taken: int) -> None:
    with pytest.raises(OptionError, match=rf"--port: {taken} is in use"):
        configuration({}, Options(port=taken))


def test_the_usual_port_need_not_be_free(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PORT", taken)
    assert configuration({}, Options()).listen == "127.0.0.1:0"


def test_what_is_chosen_is_in_the_configuration() -> None:
    options = Options(policy="random", workers=3)
    config = configuration({"fast": "http://127.0.0.1:9"}, options)
    assert (config.workers, config.models["topics"].policy) == (3, "random")
    assert [replica.name for replica in config.models["topics"].replicas] == ["fast"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--policy nope", "--policy: no policy 'nope'"),
        ("--seconds 0", "--seconds"),
        ("--workers 0", "--workers"),
        ("--port 80", "--port"),
        ("more", "unexpected extra argument"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: str, told: str) -> None:
    result = CliRunner().invoke(main, ["demo", *arguments.split()])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert told in result.stderr
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


def test_the_page_explains_every_option() -> None:
    command = main.get_command(click.Context(main), "demo")
    assert command is not None
    options = {flag for option in command.params for flag in option.opts}
    told = set(re.findall(r"^\| `(--\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert told == options
