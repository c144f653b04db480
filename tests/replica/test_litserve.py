"""The agent in a real LitServe: its main process gets the signal, another has the app, and a third computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import pytest

from ..harness.processes import alive, descendants, free_port
from ..harness.waiting import wait_until
from ..real.processes import ROOT, Program, servers_python
from .fake_gateway import gateway
from .programs import EXAMPLES, Held, ends, get, idle, load, running, tell

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("real")]
CHAT = Path(__file__).parent / "servers/litserve_chat.py"  # not beside `http`, which would hide the library's
SHARED = json.dumps({"a": "heavy rain", "b": "rain and wind"}).encode()


def litserve(folder: Path, *options: object, script: Path | None = None, **more: str) -> Program:
    port = free_port()
    command = [str(servers_python()), str(script or EXAMPLES / "litserve_app.py")]
    command += [str(port), *map(str, options)] if script else ["--port", str(port), *map(str, options)]
    return Program("litserve", command, port, folder, "/steelyard/ready", {"PYTHONPATH": str(ROOT / "src"), **more})


def long(program: Program, seconds: float, found: list[int]) -> threading.Thread:
    body = json.dumps({"a": "x", "b": "y", "seconds": seconds}).encode()
    thread = threading.Thread(target=lambda: found.append(get(program, "/predict", "POST", body)[0]))
    thread.start()
    return thread


def all_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(alive, pids)), "all its processes to end")


def test_it_is_ready_when_its_workers_are_and_says_what_it_does(tmp_path: Path) -> None:
    with running(litserve(tmp_path, "--load-seconds", 0.5)) as program:
        program.wait()
        assert get(program, "/predict", "POST", SHARED) == (200, {"shared": ["rain"], "score": 0.25})
        idle(program)
        assert Held(program, "/predict", SHARED).end() == 200
        report = idle(program)
        assert (report["model"], report["running"], report["served"]) == ("shared-words", 0, 2)


def test_sigterm_to_the_main_process_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with gateway() as fake, running(litserve(tmp_path, "--load-seconds", 0, "--gateway", fake.url)) as program:
        program.wait()
        wait_until(lambda: fake.leases, "a lease")
        pids = descendants(program.process.pid)
        held = Held(program, "/predict", SHARED)
        tell(program, SIGTERM)
        wait_until(lambda: fake.count("DELETE"), "the lease to be given up")
        assert get(program, "/predict", "POST", SHARED)[0] == 200  # it came late, and is served
        assert held.end() == 200
        assert ends(program) == 0
        all_gone(pids)
        assert fake.leases == {}


def test_a_child_that_nobody_knows_of_yet_is_ended_too(tmp_path: Path) -> None:
    """A signal between a fork and the moment at which it is written down."""
    script = tmp_path / "half_started.py"
    script.write_text(
        "import os, signal, time\n"
        "from steelyard.replica.parent_process import ParentProcess\n"
        "older = os.fork()\n"
        "if not older:\n"
        "    os.close(1)\n"
        "    time.sleep(1000)\n"
        "def serve():\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        time.sleep(1000)\n"
        "    print(older, child, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(1000)\n"
        "ParentProcess(1.0).run(serve)\n"
    )
    done = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    older, child = map(int, done.stdout.split())
    wait_until(lambda: not alive(child), "the child to end")
    assert alive(older), "it is not the server's"
    os.kill(older, SIGKILL)


def test_sigterm_while_it_loads_leaves_nothing(tmp_path: Path) -> None:
    with running(litserve(tmp_path, "--load-seconds", 1000)) as program:
        pids = wait_until(lambda: (found := descendants(program.process.pid)) and len(found) >= 3 and found, "workers")
        tell(program, SIGTERM)
        ends(program)
        all_gone(pids)


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, number: int) -> None:
    with running(litserve(tmp_path, "--load-seconds", 0)) as program:
        program.wait()
        pids = descendants(program.process.pid)
        found: list[int] = []
        thread = long(program, 1000, found)
        wait_until(lambda: load(program)["running"] == 1, "the request to begin")
        tell(program, number)
        wait_until(lambda: load(program).get("state") == "draining", "the drain to begin")
        tell(program, number)
        ends(program)
        all_gone(pids)
        thread.join(30)
        assert found == [0]


def test_the_ctrl_c_of_a_terminal_reaches_all_and_leaves_nothing(tmp_path: Path) -> None:
    with running(litserve(tmp_path, "--load-seconds", 0)) as program:
        program.wait()
        pids = descendants(program.process.pid)
        os.killpg(program.process.pid, SIGINT)
        ends(program)
        all_gone(pids)


def test_an_app_process_that_is_killed_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with running(litserve(tmp_path, "--load-seconds", 0)) as program:
        program.wait()
        pids = descendants(program.process.pid)
        app = max(pid for pid in pids if "litserve_app.py" in Path(f"/proc/{pid}/cmdline").read_text())
        os.kill(app, SIGKILL)
        tell(program, SIGTERM)
        ends(program)
        all_gone(pids)


def test_with_a_spec_it_is_sent_to_the_workers_and_does_no_harm_there(tmp_path: Path) -> None:
    with running(litserve(tmp_path, 1, script=CHAT)) as program:
        program.wait()
        body = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "how is it?"}]}).encode()
        status, answer = get(program, "/v1/chat/completions", "POST", body)
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "all is well")
        assert idle(program)["served"] == 1
        tell(program, SIGTERM)
        assert ends(program) == 0


def test_of_several_processes_on_one_port_only_one_is_registered(tmp_path: Path) -> None:
    """Two instances under one name would look like a server that restarts all the time."""
    with gateway() as fake, running(litserve(tmp_path, 2, script=CHAT, STEELYARD_GATEWAY=fake.url)) as program:
        program.wait()
        wait_until(lambda: get(program, "/steelyard/live")[0] == 200 and fake.count("PUT") > 3, "renewals")
        wait_until(lambda: "several processes serve this app" in program.log_tail(), "a word about it")
        assert len({call.instance for call in fake.heard}) == 1
        tell(program, SIGTERM)
        assert ends(program) == 0
