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
from tests.harness.processes import ESTABLISHED, alive, descendants, free_port, tcp_sockets
from tests.harness.waiting import wait_until

REPLICAS = ("fast", "half", "quarter")
PROCESSES = len(REPLICAS) + 2  # and a worker, and who cleans up
PROGRAM_TIMEOUT_SECONDS = 240.0  # on a machine with much else to do; alone it takes less than ten
PAGE = Path(__file__).parents[2] / "docs" / "demo.md"

# The program, with two ports in place of the usual ones: others may run a demo here too.
USUAL = """
import sys
from steelyard.demo import settings
settings.DEFAULT_PORT, settings.DEFAULT_ADMIN_PORT = int(sys.argv.pop(1)), int(sys.argv.pop(1))
from steelyard.cli import main
"""
# Somebody has them as soon as the demo has seen that they are free.
QUICKER = """
import socket
from steelyard.demo import run
def choose_ports(wanted, *, usual):
    found = settings.choose_ports(wanted, usual=usual)
    for port in (found.gateway, found.admin):
        socket.create_server((settings.HOST, port)).detach()
    return found
run.choose_ports = choose_ports
"""
MAIN = "main()"


class Demo:
    def __init__(self, process: subprocess.Popen[bytes], out: int, errors: Path, folder: Path) -> None:
        self.process = process
        self.raw = b""
        self.said = ""
        self._out = out
        self._errors = errors
        self._folder = folder

    def read_until(self, pattern: str) -> str:
        """All that was said, as soon as the pattern is in it."""
        while not re.search(pattern, self.said) and self._read():
            pass
        assert re.search(pattern, self.said), (
            f"it ended without {pattern!r}, exit code {self.process.wait(PROGRAM_TIMEOUT_SECONDS)}\n"
            f"{self.said}\n{self.errors()}"
        )
        return self.said

    def end(self, number: int | None = None) -> int:
        """The exit code; `said` is complete then."""
        if number is not None:
            self.process.send_signal(number)
        while self._read():
            pass
        return self.process.wait(PROGRAM_TIMEOUT_SECONDS)

    def children(self, count: int = PROCESSES) -> list[int]:
        return wait_until(
            lambda: found if len(found := descendants(self.process.pid)) >= count else [],
            f"{count} processes; it said {self.said}{self.errors()}",
        )

    def errors(self) -> str:
        """What it has said of them."""
        return self._errors.read_text()

    def files(self) -> list[Path]:
        """What it keeps while it runs."""
        return list(self._folder.glob("steelyard-demo-*"))

    def gateway(self) -> int:
        """The port."""
        found = re.search(r"gateway http://127\.0\.0\.1:(\d+)", self.read_until(r"gateway http://.*\n"))
        assert found is not None
        return int(found[1])

    def _read(self) -> bool:
        try:
            data = os.read(self._out, 65536)
        except OSError:  # how a terminal ends
            data = b""
        self.raw += data
        self.said = re.sub(r"\x1b\[[0-9;]*m", "", self.raw.decode(errors="replace"))  # without colours
        return bool(data)


@contextmanager
def demo(*arguments: str, terminal: bool = False, program: tuple[str, ...] = ("-m", "steelyard")) -> Iterator[Demo]:
    """`program`: what Python runs. Its errors go to a file, so that they never stop it and can be read at any time."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with (
        tempfile.NamedTemporaryFile(prefix="demo-errors-") as errors,
        # Of its own: others run demos here too. What cleans up after one that is killed may still be at it in the end.
        tempfile.TemporaryDirectory(prefix="demo-files-", ignore_cleanup_errors=True) as folder,
    ):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", *program, "demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=errors,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", "TMPDIR": folder},
        )
        os.close(theirs)
        too_long = threading.Timer(PROGRAM_TIMEOUT_SECONDS, process.kill)
        too_long.start()
        with process:
            try:
                yield Demo(process, ours, Path(errors.name), Path(folder))
            finally:
                too_long.cancel()
                process.kill()
                os.close(ours)


def gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(alive, pids)), f"{pids} end")


def connections(port: int) -> int:
    return sum(remote == port and state == ESTABLISHED for _, remote, state, _ in tcp_sockets())


# ---------------------------------------------------------------------- as a program


def test_it_ends_by_itself_and_says_what_happened() -> None:
    with demo("--seconds", "10") as program:  # a slow machine needs some of them for its first answers
        program.read_until("curl")
        children = program.children()
        assert program.files()
        assert program.end() == 0
        assert program.errors() == ""
        assert program.files() == []
    gone(children)
    assert re.search(r"^first answer \d+\.\d s after the start$", program.said, re.M)
    assert re.search(
        r"^ +\d+\.\d s: \d+ requests, \d+/s, p50 .*, p99 .*, waiting \d+, failed 0; fast", program.said, re.M
    )
    total = re.search(r"^([\d,]+) requests in \d+\.\d s: 0 failed, p50 \S+ m?s, p99 \S+ m?s$", program.said, re.M)
    assert total is not None
    rows = re.findall(r"^(round_robin|least_work): .* (\d+) +0 +\S+(?: m?s)? +\S+(?: m?s)? *$", program.said, re.M)
    assert [policy for policy, _ in rows] == ["round_robin", "least_work"]
    assert int(total[1].replace(",", "")) >= sum(int(count) for _, count in rows) > 0
    assert re.search(r"p99 .* with round_robin, .* with least_work|too short to compare", program.said)
    assert max(map(len, program.said.partition("failed, p50")[2].splitlines())) <= 100
    assert "steelyard serve --help" in program.said


def test_on_a_terminal_there_is_a_table_and_what_it_names_is_there() -> None:
    with demo("--policy", "least_connections", "--no-tour", terminal=True) as program:
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


def test_of_two_that_start_at_once_one_has_the_usual_ports_and_a_killed_one_leaves_nothing() -> None:
    program = ("-c", USUAL + MAIN, str(usual := free_port()), str(free_port()))
    with demo("--workers", "2", program=program) as one, demo("--no-tour", program=program) as other:
        gateways = [found.gateway() for found in (one, other)]
        assert gateways.count(usual) == 1
        assert len(set(gateways)) == 2
        for found in (one, other):
            found.read_until("first answer")
            assert found.errors() == ""
        children = one.children(PROCESSES + 1)
        one.process.kill()
        gone(children)
        assert other.end(signal.SIGTERM) == 0
        for found in (one, other):
            wait_until(lambda: not found.files(), "its files are gone")  # noqa: B023


def test_usual_ports_that_somebody_takes_while_it_starts_are_no_trouble() -> None:
    usual = free_port(), free_port()
    with demo("--no-tour", program=("-c", USUAL + QUICKER + MAIN, *map(str, usual))) as program:
        gateway = program.gateway()
        assert gateway not in usual
        said = program.read_until("first answer")
        assert f"port {usual[0]} is in use, so the gateway has another one" in said
        assert program.end(signal.SIGINT) == 0
        assert program.errors() == ""


def test_told_to_stop_before_it_has_begun() -> None:
    with demo() as program:
        program.read_until("starting")
        children = program.children(1)
        assert program.end(signal.SIGINT) == 0
        assert program.errors() == ""
    gone(children)
    assert program.said.endswith("stopped before it began\n")


def test_the_second_signal_ends_it_at_once() -> None:
    with demo("--no-tour", terminal=True) as program:
        port = program.gateway()
        program.read_until("first answer")
        children = program.children()
        for pid in children:
            if b"steelyard.gateway" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGSTOP)
        idle = connections(port)
        wait_until(lambda: connections(port) > idle, "a request that needs one more, as the others wait for answers")
        program.process.send_signal(signal.SIGINT)
        program.read_until("waiting for the last answers; Ctrl-C again ends without them")
        assert program.end(signal.SIGINT) == 130
    gone(children)


def test_failed_requests_are_told_and_make_the_exit_code_1() -> None:
    with demo("--no-tour") as program:
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
        said = program.read_until(r"→ ([23] → [345] replicas by the autoscaler|still [23] replicas)")
        children = program.children(PROCESSES + ("by the autoscaler" in said))
        assert program.end() == 0
        assert program.errors() == ""
    gone(children)
    assert "fast becomes four times slower" in said
    assert re.search(r"fast had \d+ % of the answers before, \d+ % while it was slow", said)
    assert re.search(r"→ 0 of \d+ failed, \d+ sent again to another; half was (ready again after|not ready)", said)
    assert not re.search(r"[1-9]\d* requests reached it before that", said)


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--policy nope", "--policy: no policy 'nope'"),
        ("--seconds 0", "--seconds"),
        ("--workers 0", "--workers"),
        ("--port 80", "--port"),
        ("more", "unexpected extra argument"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: str, message: str) -> None:
    result = CliRunner().invoke(main, ["demo", *arguments.split()])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


def test_the_page_explains_every_option() -> None:
    command = main.get_command(click.Context(main), "demo")
    assert command is not None
    options = {flag for option in command.params for flag in option.opts}
    documented = set(re.findall(r"^\| `(--[\w-]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert documented == options
