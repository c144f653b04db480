"""`steelyard top`: what it shows at any size, against a real supervisor, and in a real terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steelyard.cli.top.command import handle_key
from steelyard.cli.top.formatting import bar, clean, number, seconds, size, sparkline
from steelyard.cli.top.screen import SORT_ORDERS, Snapshot, ViewOptions, render, sort_replicas
from steelyard.config import AdminConfig
from steelyard.control.observability.views import (
    Alarm,
    DeviceView,
    FleetEvent,
    LiveModelView,
    LiveReplicaView,
    LiveView,
    ObjectiveView,
    RecentAttemptsView,
    SampleView,
    SloView,
    WindowView,
)

from ..control.admin.fake_operations import shown
from ..control.admin.serving import TOKEN
from ..control.driving import WAIT_TIMEOUT_SECONDS, config, run, supervised
from ..harness.processes import free_port

TOP = [sys.executable, "-m", "steelyard", "top"]
SAMPLE = SampleView(uptime=1.0, rate=12.5, bad_rate=0.5, p50=0.02, p99=1.25, waiting=3, in_flight=7, work=2.5)
MODEL = LiveModelView(
    model="llama", policy="least_work", concurrency=8, replicas=3, ready=2, oldest_wait=0.1, desired=5, sample=SAMPLE
)
EJECTED = FleetEvent(age=61.0, kind="replica", message="ejected for 30 s", model="llama", replica="r1")
ALL = ViewOptions()


def replica(number: int, **fields: Any) -> LiveReplicaView:
    given = {"model": "llama", "id": f"r{number}", "state": "ready", "work": number / 10, "p99": 0.5, **fields}
    return shown(LiveReplicaView, **given)


def known(count: int = 3, **more: Any) -> Snapshot:
    window = WindowView(seconds=300.0, good=99, bad=1, attainment=99.0, burn_rate=1.5)
    objective = ObjectiveView(
        kind="latency",
        target=99.0,
        latency=0.2,
        first_byte=None,
        per_token=None,
        windows=(window,) * 4,
        budget=window,
        error_budget_remaining=0.4,
        alert="page",
    )
    view = shown(
        LiveView,
        version="1.2.3",
        uptime=3700.0,
        workers=2,
        models=(MODEL,),
        replicas=tuple(map(replica, range(count))),
        devices=(shown(DeviceView, device="gpu0", committed=3 << 30, budget=6 << 30, capacity=8 << 30),),
        slo=(SloView(model="llama", tenant="acme", counts={}, objectives=(objective,)),),
        alarms=(shown(Alarm, code="x", message="no replica of bert is ready"),),
    )
    return Snapshot(view, {"llama": [SAMPLE] * 40}, [EJECTED], **more)


def text(known: Snapshot, shown: ViewOptions = ALL, width: int = 200, height: int | None = 40) -> str:
    return "\n".join(line.plain for line in render(known, shown, width, height))


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 120, 200, 300])
@pytest.mark.parametrize("height", [1, 3, 8, 24, 50])
@pytest.mark.parametrize("count", [0, 3, 500])
def test_it_fits(width: int, height: int, count: int) -> None:
    lines = render(known(count), ViewOptions(help=True), width, height)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)


def test_everything_is_there() -> None:
    said = text(known())
    for part in ("steelyard 1.2.3  up 1h  workers 2", "! no replica of bert is ready", "→5", "12.5", "1.25 s"):
        assert part in said
    for part in ("llama acme", "████░░░░░░   40%", "1.5× page", "gpu0", "3 GiB", "1m ago  llama/r1: ejected", "q quit"):
        assert part in said


def test_many_are_cut_and_scrolled() -> None:
    assert "more replicas, by load" in text(known(500))
    assert "r499 " in text(known(500))
    scrolled = text(known(500), ViewOptions(scroll=490))
    assert "r499 " not in scrolled
    assert "r5 " in scrolled


def test_a_narrow_terminal_has_what_matters_most() -> None:
    said = text(known(), width=60)
    assert "policy" not in said
    assert "reason" not in said
    assert "state" in said


def test_what_is_old_says_so() -> None:
    problem = "no answer from http://127.0.0.1:9: connection refused"
    assert f"{problem}; data is 7s old, retrying every 2 s" in text(known(age=7.0, problem=problem))
    assert "nothing new for 7s" in text(known(age=7.0))


def test_one_model_has_its_own_events_and_those_of_all() -> None:
    events = [
        EJECTED,
        FleetEvent(age=3.0, kind="replica", message="draining", model="llama-2", replica="r1"),
        FleetEvent(age=2.0, kind="config", message="the configuration was read again"),
    ]
    said = text(known()._replace(events=events), ViewOptions(model="llama"))
    assert "llama/r1: ejected" in said
    assert "the configuration was read again" in said
    assert "llama-2" not in said
    assert "llama-2/r1: draining" in text(known()._replace(events=events))


def test_many_models_and_alarms_leave_room_for_the_rest() -> None:
    view = known().view
    models = tuple(msgspec.structs.replace(MODEL, model=f"m{number}") for number in range(40))
    many = known()._replace(view=msgspec.structs.replace(view, models=models, alarms=view.alarms * 9))
    said = text(many, height=40)
    assert "… 27 more models" in said
    assert "! and 4 more alarms" in said
    assert "r2 " in said
    assert "more models" not in text(many, height=None)


@pytest.mark.parametrize("height", [8, 10, 12, 15])
def test_in_a_low_terminal_alarms_leave_room_for_models_and_replicas(height: int) -> None:
    view = known().view
    models = tuple(msgspec.structs.replace(MODEL, model=f"m{number}") for number in range(4))
    alarms = tuple(shown(Alarm, code="x", message=f"alarm {number}") for number in range(7))
    low = known()._replace(view=msgspec.structs.replace(view, models=models, alarms=alarms))
    said = text(low, height=height)
    assert "! 7 alarms: alarm 0 · alarm 1 · alarm 2" in said
    assert "m0 " in said
    assert "r2 " in said
    assert "q quit" in said
    one = low._replace(view=msgspec.structs.replace(low.view, alarms=alarms[:1]))
    assert "! alarm 0" in text(one, height=height)


@pytest.mark.parametrize("width", [40, 50, 80])
def test_in_a_narrow_terminal_replicas_of_several_models_are_told_apart(width: int) -> None:
    replicas = (replica(1), replica(1, model="a-model-with-a-very-long-name"), replica(1, model="bert"))
    several = known()._replace(view=msgspec.structs.replace(known().view, replicas=replicas))
    rows = [line for line in text(several, width=width).splitlines() if "r1" in line and "ago" not in line]
    assert len({line[:24] for line in rows}) == len(rows) == 3
    assert "a-model-with-a-very-…/r1" in text(several, width=width)
    assert "llama/r1 " in text(several, width=width)
    assert "llama/r1 " not in text(several, ViewOptions(model="llama"), width=width).partition("ago")[0]
    assert "llama/r1 " not in text(several, width=200).partition("ago")[0]
    alike = [replica(1, model=f"meta-llama/Llama-3.1-{size}B-Instruct") for size in (8, 70)]
    said = text(known()._replace(view=msgspec.structs.replace(known().view, replicas=tuple(alike))), width=width)
    assert "…8B-Instruct/r1 " in said
    assert "…70B-Instruct/r1 " in said


def test_a_long_name_gets_the_room_that_there_is() -> None:
    name = "an-instance-of-a-model-with-a-long-name"
    view = msgspec.structs.replace(known().view, replicas=(replica(1, id=name, reason=""),))
    assert name in text(Snapshot(view), width=180)
    assert name not in text(Snapshot(view), width=60)


def test_a_model_that_is_not_there_is_told() -> None:
    assert "there is no model 'bert' (now)" in text(known(), ViewOptions(model="bert"))


def test_none_wanted_and_none_there_is_no_alarm() -> None:
    quiet = msgspec.structs.replace(SAMPLE, bad_rate=0.0)
    asleep = msgspec.structs.replace(MODEL, replicas=0, ready=0, desired=0, sample=quiet)
    lines = render(Snapshot(msgspec.structs.replace(known().view, models=(asleep,))), ALL, 200, 40)
    (line,) = [line for line in lines if "0/0" in line.plain]
    assert "red" not in [str(span.style) for span in line.spans]


def test_names_move_no_cursor() -> None:
    view = msgspec.structs.replace(known().view, replicas=(replica(1, id="a\x1b[2J\nb", reason="\x07"),))
    said = text(Snapshot(view))
    assert "a·[2J·b" in said
    assert "\x1b" not in said
    assert clean("é\u202e") == "é·"


def test_numbers() -> None:
    assert [seconds(s) for s in (None, 0.0, 0.0123, 0.9, 1.234, 75.0)] == [
        "–",
        "–",
        "12.3 ms",
        "900 ms",
        "1.23 s",
        "75 s",
    ]
    assert [number(n) for n in (0, 2.0, 2.34, 123.4, 45_678)] == ["0", "2", "2.3", "123", "46k"]
    assert [size(n) for n in (None, 5, 1 << 20, 3 << 40)] == ["–", "5 B", "1 MiB", "3 TiB"]
    assert sparkline([0.0, None, 1.0, 0.5], 6) == "  ▁ █▅"
    assert sparkline([], 3) == "   "
    assert (bar(0.5, 4), bar(-1.0, 2), bar(9.0, 2)) == ("██░░", "░░", "██")


def test_sorts() -> None:
    some = [replica(1, work=0.5), replica(2, work=2.0, state="unreachable"), replica(3, p99=9.0, rate=7.0, work=0.1)]
    first = {sort: sort_replicas(some, sort)[0].id for sort in SORT_ORDERS}
    assert first == {"load": "r2", "p99": "r3", "rate": "r3", "state": "r2", "name": "r1"}


def test_a_replica_that_fails_attempts_is_first_and_says_so_at_80_columns() -> None:
    recent = RecentAttemptsView(
        seconds=60.0, attempts=10, failed=7, failing=True, last_error="HTTP 500", last_error_age=2.0
    )
    view = known(6).view
    model = msgspec.structs.replace(MODEL, ready=3, replicas=3, desired=None, failing=1)
    replicas = (*view.replicas, replica(9, work=0.0, recent=recent))
    said = text(known()._replace(view=msgspec.structs.replace(view, models=(model,), replicas=replicas)), width=80)
    rows = said.splitlines()
    (title,) = [place for place, row in enumerate(rows) if row.startswith("replica ")]
    assert rows[title + 1].split()[:5] == ["r9", "ready", "70%", "HTTP", "500"]
    assert "3/3 !1" in said


def test_how_slow_it_is_needs_evidence() -> None:
    view = msgspec.structs.replace(known().view, replicas=(replica(1, slowness=4.0), replica(2, slowness=None)))
    said = text(known()._replace(view=view), width=120)
    assert "×4" in said
    assert said.count("×") == 1 + said.count("1.5×")


def test_keys() -> None:
    view = known(3).view
    at = ViewOptions()
    for key in ("down", "down", "down", "up", "page down"):
        at = handle_key(key, at, view)
    assert at.scroll == 2
    assert handle_key("s", at, view) == ViewOptions(sort="p99")
    assert handle_key("m", at, view).model == "llama"
    assert handle_key("m", handle_key("m", at, view), view).model == ""
    assert handle_key("p", at, view).paused
    assert handle_key("?", at, view).help
    assert handle_key("x", at, None) == at


def test_no_gateway_is_one_line() -> None:
    done = subprocess.run(
        [*TOP, "--once", "--admin", "127.0.0.1:9"], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: no answer from http://127.0.0.1:9: connection refused\n"


def ask(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOP, *arguments], capture_output=True, encoding="utf-8", check=False, env={**os.environ, **more}
    )


def test_one_look_at_a_real_gateway(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(TOKEN)
    made = config(1)
    made = msgspec.structs.replace(made, admin=AdminConfig(listen="127.0.0.1:0", token_file=str(tmp_path / "tokens")))

    async def work() -> None:
        async with supervised(made) as supervisor:
            where = ("--admin", f"http://{supervisor.admin_address}")
            seen = await asyncio.to_thread(ask, *where, "--once", "--token-file", str(tmp_path / "tokens"))
            assert (seen.returncode, seen.stderr) == (0, "")
            assert "workers 1  replicas 1" in seen.stdout
            assert "127.0.0.1:9" in seen.stdout
            seen = await asyncio.to_thread(ask, *where, "--json", STEELYARD_TOKEN=TOKEN)
            assert msgspec.json.decode(seen.stdout, type=LiveView).models[0].model == "m"
            seen = await asyncio.to_thread(ask, *where, "--once", "--model", "x", STEELYARD_TOKEN=TOKEN)
            assert seen.stderr == "error: there is no model 'x'; there are: m\n"
            seen = await asyncio.to_thread(ask, *where, "--once")
            assert seen.returncode == 2
            assert "needs a token: --token-file, or STEELYARD_TOKEN in the environment" in seen.stderr

    run(work())


class Screen:
    """`steelyard top` in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.mine, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (30, 100))
        self.theirs = theirs
        self.before = termios.tcgetattr(theirs)
        self.said = b""
        self.process = subprocess.Popen([*TOP, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, process_group=0)

    def until(self, what: bytes) -> None:
        end = time.monotonic() + WAIT_TIMEOUT_SECONDS
        while what not in self.said:
            if time.monotonic() > end:
                self.process.kill()
                self.process.wait()
                raise AssertionError(self.said[-3000:])
            if select.select([self.mine], [], [], 0.1)[0]:
                self.said += os.read(self.mine, 65536)

    def ended(self) -> int:
        self.until(b"\x1b[?1049l")
        code = self.process.wait(WAIT_TIMEOUT_SECONDS)
        assert termios.tcgetattr(self.theirs) == self.before
        os.close(self.mine)
        os.close(self.theirs)
        return code


def in_a_terminal(address: str) -> None:
    screen = Screen("--admin", address)
    screen.until(b"\x1b[?1049h")
    screen.until(b"127.0.0.1:9")
    os.write(screen.mine, b"?")
    screen.until(b"sorted by load")
    os.write(screen.mine, b"s\x1b[B\x1b[C\x1b[H\x1bOP\x1b[1;5D")  # keys that do nothing do not quit
    screen.until(b"sorted by p99")
    os.write(screen.mine, b"s")
    screen.until(b"sorted by rate")
    os.write(screen.mine, b"q")
    assert screen.ended() == 0


def test_a_terminal_is_as_before_afterwards() -> None:
    async def work() -> None:
        made = msgspec.structs.replace(config(1), admin=AdminConfig(listen="127.0.0.1:0"))
        async with supervised(made) as supervisor:
            await asyncio.to_thread(in_a_terminal, str(supervisor.admin_address))

    run(work())


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_also_when_it_is_ended_and_nobody_answers(how: signal.Signals, code: int) -> None:
    screen = Screen("--admin", "127.0.0.1:9")
    screen.until(b"no answer from http://127.0.0.1:9: connection refused; retrying in 2 s")
    screen.process.send_signal(how)
    assert screen.ended() == code


def test_stopped_it_gives_the_terminal_back_and_goes_on_later() -> None:
    screen = Screen("--admin", "127.0.0.1:9")
    screen.until(b"retrying in 2 s")
    screen.process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(screen.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    screen.until(b"\x1b[?1049l")
    assert termios.tcgetattr(screen.theirs) == screen.before
    screen.said = b""
    screen.process.send_signal(signal.SIGCONT)
    screen.until(b"\x1b[?1049h")
    screen.until(b"retrying in 2 s")
    os.write(screen.mine, b"q")
    assert screen.ended() == 0


def test_a_gateway_that_goes_and_comes_back() -> None:
    address = f"127.0.0.1:{free_port()}"
    made = msgspec.structs.replace(config(1), admin=AdminConfig(listen=address))

    async def work() -> None:
        async with supervised(made):
            screen = Screen("--admin", address)
            await asyncio.to_thread(screen.until, b"127.0.0.1:9")
        await asyncio.to_thread(screen.until, b"; data is ")
        screen.said = b""
        async with supervised(made):
            await asyncio.to_thread(
                screen.until, b"replicas 1\x1b[K\r\n\x1b[2mmodel"
            )  # nothing between: it is not old any more
            os.write(screen.mine, b"q")
            assert await asyncio.to_thread(screen.ended) == 0

    run(work())
