"""`steelyard serve` as a program, with workers that carry nothing; tests/control has them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from steelyard.cli import main
from steelyard.cli.serve import describe_models
from steelyard.config import AutoscaleConfig, Config, ModelConfig, ReplicaConfig
from steelyard.control.discovery.dns.config import DnsDiscovery
from steelyard.control.discovery.file import FileDiscovery
from steelyard.runtimes.process.config import ProcessRuntimeConfig
from steelyard.system import package_form
from tests.harness.processes import free_port

FAKE = Path(__file__).parents[1] / "control" / "fake_worker.py"
START = f"""
import sys
import steelyard.control.supervisor.supervisor as s
s.Supervisor.__init__.__kwdefaults__["command"] = (sys.executable, {str(FAKE)!r})
from steelyard.cli import main
main()
"""
FILE = "listen: 127.0.0.1:0\nmodels:\n  m: {replicas: [{url: 'http://127.0.0.1:9'}]}\n"
RUNTIME = ProcessRuntimeConfig(command="./serve {port}")
REPLICA = ("--replica", "http://127.0.0.1:9", "--listen", "127.0.0.1:0")
WAIT_TIMEOUT_SECONDS = 60.0  # until a test gives up waiting
PROGRAM_TIMEOUT_SECONDS = 240.0  # for a program of a test, on a machine with much else to do


class Serving:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def line_with(self, text: str) -> str:
        """Reads on until it comes."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r} in\n{''.join(self.lines)}")

    def url(self) -> str:
        match = re.search(r"listening on (http://127\.0\.0\.1:\d+)", self.line_with("listening on"))
        assert match is not None
        return match[1]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(WAIT_TIMEOUT_SECONDS)
        assert self.process.stderr is not None
        self.lines += self.process.stderr
        return code


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[Serving]:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, **environment},
    )
    too_long = threading.Timer(PROGRAM_TIMEOUT_SECONDS, process.kill)
    too_long.start()
    with process:
        try:
            yield Serving(process)
        finally:
            too_long.cancel()
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            workers = children.read_text().split() if children.exists() else []
            process.kill()
            for worker in workers:  # they would go on
                with suppress(ProcessLookupError):
                    os.kill(int(worker), signal.SIGKILL)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_TIMEOUT_SECONDS) as answer:
        return str(answer.read().decode())


# ---------------------------------------------------------------------- as a program


def test_without_a_file_from_start_to_end() -> None:
    with serving(*REPLICA) as program:
        url = program.url()
        assert get(url).startswith("0 ")
        assert program.end() == 0
        said = "".join(program.lines)
    assert "model *: policy least_work, concurrency unlimited: 127.0.0.1:9" in said
    assert f"next: send requests to {url} as to a replica\n" in said  # not "there", below the dashboard's address
    assert "next: Ctrl-C to stop\n" in said
    assert re.search(r"stopped$", said)
    for line in program.lines:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warning) +\S", line), line
        assert "\x1b" not in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_finished(number: int) -> None:
    with serving(*REPLICA) as program:
        url = program.url()
        _, host, port = url.replace("//", "").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
            get(url)  # so the other has been accepted
            assert program.end(number) == 0
            assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_the_second_signal_ends_it_at_once() -> None:
    with serving(*REPLICA, FAKE_WORKER="stubborn") as program:
        program.url()
        program.process.send_signal(signal.SIGINT)
        program.line_with("stopping")
        assert program.end(signal.SIGTERM) == 128 + signal.SIGTERM


def test_told_to_stop_before_it_has_started() -> None:
    with serving(*REPLICA, FAKE_WORKER="silent") as program:
        program.line_with("model *")
        children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children")
        while not (worker := children.read_text()):
            time.sleep(0.01)
        assert program.end() == 0
    assert not Path(f"/proc/{worker.strip()}").exists()


def test_json_lines_for_machines() -> None:
    with serving(*REPLICA, "--log-format", "json") as program:
        program.url()
        assert program.end() == 0
    entries = [json.loads(line) for line in program.lines]
    assert all({"time", "level", "message"} <= set(entry) for entry in entries)
    assert any(entry["message"].startswith("listening on http://127.0.0.1:") for entry in entries)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_pure_form_says_once_how_to_get_the_compiled_one(workers: str) -> None:
    with serving(*REPLICA, "--workers", workers, "--log-format", "json") as program:
        program.url()
        assert program.end() == 0
    said = [line for line in program.lines if "STEELYARD_COMPILE=1" in line]
    assert len(said) == (package_form() == "pure Python")


def save(file: Path, text: str) -> None:
    """All of it at once: nobody sees half of it, however slow we are."""
    aside = file.with_suffix(".new")
    aside.write_text(text)
    aside.replace(file)


def test_a_hang_up_and_a_saved_file_reload(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    save(file, FILE)
    with serving(str(file)) as program:
        url = program.url()
        program.line_with(f"next: steelyard check {file} has ")
        assert get(url).endswith(" 1")
        program.process.send_signal(signal.SIGHUP)
        program.line_with("reloaded: 1 model, 1 replica, 1 worker")
        assert get(url).endswith(" 2")
        save(file, FILE.replace("m:", "m: {policy: nope}\n  n:"))
        assert f"the last good one stays: {file}:3: models.m.policy" in program.line_with("refused")
        save(file, FILE.replace("m:", "n:").replace("127.0.0.1:0", "127.0.0.1:1"))
        program.line_with("reloaded")
        program.line_with("needs a restart: listen")
        assert get(url).endswith(" 3")
        assert program.end() == 0


def test_it_stops_when_its_terminal_is_closed() -> None:
    """Then nobody could stop it with Ctrl-C. Otherwise a hang-up means a reload."""
    ours, terminal = os.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-c", START, "serve", *REPLICA],
        stderr=terminal,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(terminal)
    with process:
        said = b""
        while b"listening on" not in said:
            said += os.read(ours, 65536)
        process.send_signal(signal.SIGHUP)
        while b"reloaded" not in said:
            said += os.read(ours, 65536)
        worker = int(re.findall(rb"pid (\d+)", said)[0])
        os.close(ours)
        assert process.wait(WAIT_TIMEOUT_SECONDS) == 0
    assert not Path(f"/proc/{worker}").exists()


def test_the_workers_go_on_when_the_supervisor_is_killed() -> None:
    with serving(*REPLICA) as program:
        url = program.url()
        worker = int(get(url).split()[1])
        program.process.kill()
        program.process.wait()
        try:
            assert get(url).split()[1] == str(worker)
        finally:
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("unix", [False, True])
def test_and_leave_when_there_is_a_new_one(tmp_path: Path, unix: bool) -> None:
    """Nobody has to find and kill what a killed supervisor left behind."""
    where = f"unix:{tmp_path}/s" if unix else f"127.0.0.1:{free_port()}"
    arguments = ("--replica", "http://127.0.0.1:9", "--listen", where, "--workers", "2")
    with serving(*arguments) as program:
        # Two workers and the balancer process.
        pids = {int(re.findall(r"pid (\d+)", program.line_with("ready after"))[0]) for _ in range(3)}
        program.process.kill()
        program.process.wait()
        with serving(*arguments) as another:
            another.line_with("listening on")
            while any(Path(f"/proc/{pid}").exists() for pid in pids):
                time.sleep(0.01)
            with serving(*arguments) as third:  # but not beside a supervisor that lives
                assert third.process.wait(WAIT_TIMEOUT_SECONDS) == 2
            assert another.end() == 0


def test_systemd_is_told(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(FILE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_TIMEOUT_SECONDS)
        with serving(str(file), NOTIFY_SOCKET=str(tmp_path / "notify")) as program:
            assert manager.recv(4096) == b"READY=1"
            program.process.send_signal(signal.SIGHUP)
            assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(4096))
            assert manager.recv(4096) == b"READY=1"
            assert program.end() == 0
            assert manager.recv(4096) == b"STOPPING=1"


def test_what_it_cannot_do_is_one_line_and_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with serving("--replica", "http://127.0.0.1:9", "--listen", where) as program:
            assert program.process.wait(WAIT_TIMEOUT_SECONDS) == 2
            error = program.line_with("error:")
    assert error.startswith(f"error: cannot listen on {where}: the address is in use already")
    with serving(*REPLICA, FAKE_WORKER="dies") as program:
        assert program.process.wait(WAIT_TIMEOUT_SECONDS) == 2
        assert "ended with exit code 1" in program.line_with("error: worker 0")


# ---------------------------------------------------------------------- what the flags mean


def test_the_options_are_all_explained() -> None:
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    options = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    documented = {
        flag for row in re.findall(r"^\| `(--.*?)` \|", page, re.MULTILINE) for flag in re.findall(r"--[\w-]+", row)
    }
    assert documented == options


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configurations that would have been served."""
    found: list[Config] = []

    def note(reread: Any, *rest: Any) -> int:
        found.append(reread())
        return 0

    monkeypatch.setattr("steelyard.cli.serve.run_gateway", note)
    return found


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["serve", *arguments])


def test_flags_alone(wanted: list[Config]) -> None:
    flags = "--model m --policy random --concurrency 4 --listen :80 --listen unix:/s --workers 3 --access-log -"
    assert invoke("--replica", "http://a:1", "--replica", "http://b:2", *flags.split()).exit_code == 0
    (config,) = wanted
    model = config.models["m"]
    assert [replica.name for replica in model.replicas] == ["a:1", "b:2"]
    assert (model.policy, model.concurrency, config.workers) == ("random", 4, 3)
    assert config.listen == (":80", "unix:/s")
    assert config.access_log is not None
    assert (config.access_log.path, config.access_log.format) == ("-", "json")


def test_a_command_to_start_replicas(wanted: list[Config]) -> None:
    start = f"{sys.executable} server.py --port {{port}}"
    flags = "--scale 1-4 --model m --policy random --concurrency 4 --health-path /ready --workers 2 --admin off"
    assert invoke("--start", start, *flags.split(), "--replica", "http://a:1").exit_code == 0
    assert invoke("--start", start).exit_code == 0
    both, alone = wanted
    model = both.models["m"]
    assert model.runtime is not None
    assert model.autoscale is not None
    assert isinstance(model.runtime, ProcessRuntimeConfig)
    assert (model.runtime.command, model.runtime.working_directory) == (start, os.getcwd())
    assert (model.autoscale.min, model.autoscale.max) == (1, 4)
    assert (model.policy, model.concurrency, model.health.path, both.workers) == ("random", 4, "/ready", 2)
    assert [replica.name for replica in model.replicas] == ["a:1"]
    assert alone.models["*"].runtime is not None
    assert (alone.models["*"].runtime.replicas, alone.models["*"].autoscale) == (1, None)


def test_the_help_teaches_how_to_start_them() -> None:
    said = invoke("--help").stdout
    assert 'steelyard serve --start "steelyard demo-replica --port {port}" --scale 1-4' in said
    assert "N|MIN-MAX" in said


def test_flags_win_over_the_file(wanted: list[Config], tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(FILE + "workers: 2\naccess_log: {path: x.log, format: text}\n")
    assert invoke(str(file)).exit_code == 0
    assert invoke(str(file), "--listen", ":81", "--concurrency", "auto", "--access-log", f"{tmp_path}/y").exit_code == 0
    plain, changed = wanted
    assert (plain.listen, plain.workers, plain.models["m"].concurrency) == ("127.0.0.1:0", 2, "unlimited")
    assert (changed.listen, changed.workers, changed.models["m"].concurrency) == (":81", 2, "auto")
    assert changed.access_log is not None
    assert (changed.access_log.path, changed.access_log.format) == (f"{tmp_path}/y", "text")


def test_flags_of_probes_and_of_the_admin_api(
    wanted: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tokens").write_text("0123456789abcdef")
    flags = "--health-path /ready?deep=1 --admin :9080 --admin-token-file tokens"
    assert invoke("--replica", "http://a:1", *flags.split()).exit_code == 0
    assert invoke("--replica", "http://a:1", "--admin", "off").exit_code == 0
    assert invoke("--replica", "http://a:1", "--admin=").exit_code == 0
    assert invoke("--replica", "http://a:1").exit_code == 0
    assert wanted[0].models["*"].health.path == "/ready?deep=1"
    assert wanted[0].admin.token_file == str(tmp_path / "tokens")
    assert [config.admin.listen for config in wanted] == [":9080", "", "", None]


def test_it_says_where_replicas_are() -> None:
    listed = tuple(ReplicaConfig(url=f"http://r{n}") for n in range(10))
    sources = (DnsDiscovery(name="m.svc", port=1), FileDiscovery(path="/etc/more.yaml"))
    models = {
        "many": ModelConfig(replicas=listed, discovery=sources),
        "found": ModelConfig(discovery=sources[:1]),
        "none": ModelConfig(),
        "three": ModelConfig(runtime=ProcessRuntimeConfig(command="python server.py --token s3cret", replicas=3)),
        "few": ModelConfig(replicas=listed[:1], runtime=RUNTIME, autoscale=AutoscaleConfig(min=0, max=4)),
        "any": ModelConfig(runtime=RUNTIME, autoscale=AutoscaleConfig()),
        "told": ModelConfig(runtime=RUNTIME, autoscale=AutoscaleConfig(mode="recommend", max=9)),
    }
    many, some, none, three, few, any_number, recommended = describe_models(Config(models=models))
    assert many.endswith(
        "r6:80, r7:80 and 2 more and those found in dns m.svc (A, AAAA) and those found in file /etc/more.yaml"
    )
    assert some.endswith(": those found in dns m.svc (A, AAAA)")
    assert none.endswith(": no replicas yet")
    assert three.endswith(": 3 started as python server.py")
    assert few.endswith(": r0:80 and 0 to 4 started as ./serve {port}")
    assert any_number.endswith(": 1 or more started as ./serve {port}")
    assert recommended.endswith(": 1 started as ./serve {port}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "serve what? Name replicas: steelyard serve --replica http://HOST:PORT"),
        ("--replica ftp://a", "--replica: 'ftp://a' is not the URL of a replica"),
        ("--replica http://a:1 --concurrency 0", "a whole number from 1, auto or unlimited"),
        ("--replica http://a:1 --listen nowhere", "--listen: 'nowhere' is not an address"),
        ("--replica http://a:1 --policy nope", "--policy: "),
        ("--replica http://a:1 --workers 0", "--workers"),
        ("--replica http://a:1 --access-log=", "--access-log: name a file"),
        ("--replica http://a:1 --access-log /nope/x", "--access-log: /nope/x: there is no directory /nope"),
        ("--replica http://a:1 --access-log /", "--access-log: /: is a directory"),
        ("--replica http://a:1 --health-path ready", "--health-path: 'ready': a path begins with a slash"),
        (
            "--replica http://a:1 --admin foo",
            "the port is missing, write for example foo:9080",
        ),
        ("--replica http://a:1 --admin 9080", "--admin: '9080' is not an address"),
        ("--replica http://a:1 --admin :9080", "--admin: other machines can reach :9080: name a token_file"),
        ("--replica http://a:1 --admin-token-file no-such.txt", "--admin-token-file: "),
        ("x.yaml --replica http://a:1", "--replica is for serving without a file"),
        ("x.yaml --model m", "--model is for serving without a file"),
        ("x.yaml --start sh", "--start is for serving without a file"),
        ("x.yaml --scale 3", "--scale is for serving without a file"),
        ("", "serve what? Name replicas"),
        ("--scale 3", "--scale: nothing starts replicas: add --start COMMAND"),
        ("--replica http://a:1 --scale 3", "--scale: nothing starts replicas: add --start COMMAND"),
        ("--start sh", "--start: `command` does not pass the port"),
        ("--start no-such-program", "--start: there is no program no-such-program on the PATH"),
        ("no-such.yaml", "no-such.yaml"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: str, message: str) -> None:
    result = invoke(*arguments.split())
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
