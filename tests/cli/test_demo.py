"""`steelyard demo` as a program: it serves, it shows, and nothing of it is left."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from steelyard.cli import main
from tests.harness.processes import alive, descendants
from tests.harness.waiting import wait_until

REPLICAS = ("fast", "half", "quarter")
PROCESSES = len(REPLICAS) + 2  # and a worker, and who cleans up
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


def left() -> set[Path]:
    """Folders of demos, of others too."""
    return set(Path(tempfile.gettempdir()).glob("steelyard-demo-*"))


# ---------------------------------------------------------------------- as a program


def test_it_ends_by_itself_and_says_what_happened() -> None:
    with demo("--seconds", "5") as program:
        program.read_until("curl")
        children = program.children()
        folders = left()
        assert program.end() == 0
        assert program.errors() == ""
    gone(children)
    assert not folders & left()
    assert re.search(r"^first answer \d+\.\d s after the start$", program.said, re.M)
    assert re.search(
        r"^ +2\.\d s: \d+ requests, \d+/s, p50 .*, p99 .*, waiting \d+, failed 0; fast", program.said, re.M
    )
    total = re.search(r"^([\d,]+) requests in 5\.\d s, at the end with least_work: 0 failed, p50 ", program.said, re.M)
    assert total is not None
    rows = re.findall(r"^(requests go|the same requests).* (\d+) +0 +\S+ m?s +\S+ m?s *$", program.said, re.M)
    assert len(rows) == 2
    assert all(int(count) for _, count in rows)
    assert int(total[1].replace(",", "")) >= sum(int(count) for _, count in rows)
    assert re.search(r"p99 .* with round_robin, .* with least_work", program.said)
    assert "steelyard serve --help" in program.said


def test_on_a_terminal_there_is_a_table_and_what_it_names_is_there() -> None:
    with demo("--policy", "least_connections", "--no-guide", terminal=True) as program:
        said = program.read_until(r"heavy rain and wind.*")
        dashboard = re.search(r"http://127\.0\.0\.1:\d+/(?=\s)", said)
        assert dashboard is not None
        with urllib.request.urlopen(dashboard[0] + "v1/fleet", timeout=60) as answer:
            (model,) = json.load(answer)["models"]
        assert model["policy"] == "least_connections"
        _, _, command = said.partition("curl -i ")
        program.read_until("in flight")
        url, *rest = shlex.split(command.partition("}'")[0] + "}'")
        assert rest[0::2] == ["-H", "-d"]
        name, _, value = rest[1].partition(": ")
        with urllib.request.urlopen(urllib.request.Request(url, rest[3].encode(), {name: value}), timeout=60) as answer:
            assert answer.headers["steelyard-replica"] in REPLICAS
            (row,) = json.load(answer)["data"]
        assert len(row["embedding"]) == 384
        for word in ("share", "work", "speed", "ready", "a second"):
            program.read_until(word)
        children = program.children()
        assert program.end(signal.SIGINT) == 0
        assert program.errors() == ""
    gone(children)
    assert "with least_connections" in program.said
    assert program.said.endswith("replicas of your own\r\n")
    assert program.said.rindex("\x1b[?25h") > program.said.rindex("\x1b[?25l")  # the cursor is back


def test_two_at_once_have_ports_of_their_own_and_a_killed_one_leaves_nothing() -> None:
    before = left()
    with demo("--workers", "2") as one, demo("--no-guide") as other:
        said = [program.read_until("first answer") for program in (one, other)]
        gateways = {found[1] for text in said if (found := re.search(r"gateway http://127.0.0.1:(\d+)", text))}
        assert len(gateways) == 2
        children = one.children(PROCESSES + 1)
        one.process.kill()
        gone(children)
        assert other.end(signal.SIGTERM) == 0
    wait_until(lambda: not left() - before, "their folders are gone")


def test_told_to_stop_before_it_has_begun() -> None:
    with demo() as program:
        program.read_until("starting")
        children = program.children(1)
        assert program.end(signal.SIGINT) == 0
        assert program.errors() == ""
    gone(children)
    assert program.said.endswith("stopped before it began\n")


def test_the_second_signal_ends_it_at_once() -> None:
    with demo("--no-guide", terminal=True) as program:
        said = program.read_until("in flight")
        children = program.children()
        for pid in re.findall(r"pid (\d+)", said):
            os.kill(int(pid), signal.SIGSTOP)  # so there are requests to wait for
        program.read_until(r"ready +[\d,]+ +\d+ % +█* +[1-9]\d* ")  # in flight
        program.process.send_signal(signal.SIGINT)
        program.read_until("waiting for the last answers")
        assert program.end(signal.SIGINT) == 130
    gone(children)


def test_failed_requests_are_told_and_make_the_exit_code_1() -> None:
    with demo("--no-guide") as program:
        said = program.read_until("curl")
        replicas = [int(pid) for pid in re.findall(r"pid (\d+)", said)]
        assert len(replicas) == 3
        for pid in replicas:
            os.kill(pid, signal.SIGKILL)
        program.read_until(r"failed [1-9]")
        assert program.end(signal.SIGTERM) == 1
    assert re.search(r"^\d+ failed: (502|503)", program.said, re.M)


@pytest.mark.slow
def test_the_whole_guided_minute_and_nothing_is_left_of_it() -> None:
    with demo("--seconds", "70") as program:
        said = program.read_until(r"→ \d → [45] replicas by the autoscaler")
        children = program.children(PROCESSES + 1)
        assert program.end() == 0
        assert program.errors() == ""
    gone(children)
    assert "fast becomes four times slower" in said
    assert re.search(r"fast had \d+ % of the answers before, \d+ % while it was slow$", said, re.M)
    assert re.search(r"→ 0 of \d+ failed, .*half was ready again after .*, and 0 requests reached it", said)


# ---------------------------------------------------------------------- what cannot be


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
    told = set(re.findall(r"^\| `(--[\w-]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert told == options
