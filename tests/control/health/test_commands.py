"""Probes by command, with real programs."""

from __future__ import annotations

from pathlib import Path

from steelyard.control.health.prober import MAX_COMMAND_PROBES
from tests.control.driving import run, until

from .servers import target, watching

LIVE, LOADED, LOST = "live", "loaded", "lost"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_command(tmp_path: Path) -> None:
    state = tmp_path / "state"

    def put(code: int) -> None:
        """All of it at once: the command may read it any time."""
        (tmp_path / "new").write_text(f"{code}\n")
        (tmp_path / "new").replace(state)

    put(75)
    program = script(
        tmp_path / "probe",
        f'echo "$@ $STEELYARD_URL $STEELYARD_HOST $STEELYARD_PORT $STEELYARD_ID $STEELYARD_MODEL" >> {tmp_path}/told\n'
        f'echo ignored; echo first >&2; read now < {state}; echo "state $now" >&2; exit $now',
    )

    async def scenario() -> None:
        command = (program, "{host}:{port}", "{id};{model}", "${x}{url}", "$HOME;echo")
        async with watching(target("http://10.0.0.9:8000", id="r1", command=command)) as watcher:
            await until(lambda: watcher.last == LIVE)
            assert watcher.reason == "state 75"
            put(0)
            await until(lambda: watcher.last == LOADED)
            put(1)
            await until(lambda: watcher.last == LOST)
            assert watcher.reason == "state 1"

    run(scenario())
    arguments = (tmp_path / "told").read_text().splitlines()[0].split()
    assert arguments == [
        "10.0.0.9:8000", "r1;m", "${x}http://10.0.0.9:8000", "$HOME;echo",
        "http://10.0.0.9:8000", "10.0.0.9", "8000", "r1", "m",
    ]  # fmt: skip


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = script(tmp_path / "probe", f"sleep 1000 & echo $! >> {pids}; echo $$ >> {pids}; wait")

    async def scenario() -> None:
        async with watching(target("http://127.0.0.1:9", command=(program,), timeout=0.5)) as watcher:
            await until(lambda: watcher.last == LOST)
            assert watcher.reason == f"{program} has not ended in time (0.5 s)"
            await until(lambda: pids.exists() and len(pids.read_text().split()) >= 4)

    run(scenario())
    run(gone(pids.read_text().split()))


async def gone(pids: list[str]) -> None:
    assert pids
    await until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and alive(pid) for pid in pids))


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_command_that_says_very_much_and_leaves_something_running(tmp_path: Path) -> None:
    program = script(
        tmp_path / "probe",
        f"sleep 1000 & echo $! >> {tmp_path}/pids\nhead -c 3000000 /dev/zero >&2\necho >&2; echo the end >&2; exit 0",
    )

    async def scenario() -> None:
        async with watching(target("http://127.0.0.1:9", command=(program,))) as watcher:
            await until(lambda: watcher.last == LOADED)
            assert watcher.reason.endswith("the end")
            assert len(watcher.reason) <= 200

    run(scenario())
    run(gone((tmp_path / "pids").read_text().split()))


def test_a_command_that_is_not_there_says_nothing_of_the_replica() -> None:
    async def scenario() -> None:
        async with watching(target("http://127.0.0.1:9", id="a", command=("/no/such/program",))) as watcher:
            await until(lambda: watcher.prober.view(("m", "a")).age is not None)  # type: ignore[union-attr]
            view = watcher.prober.view(("m", "a"))
            assert view is not None
            assert view.result == "unknown"
            assert view.message == "/no/such/program cannot be run: No such file or directory"
            assert not watcher.changes

    run(scenario())


def test_so_many_commands_at_once(tmp_path: Path) -> None:
    program = script(
        tmp_path / "probe",
        f"touch {tmp_path}/run.$$; sleep 0.05; ls {tmp_path}/run.* | wc -l >> {tmp_path}/n; rm {tmp_path}/run.$$",
    )

    async def scenario() -> None:
        aims = [target("http://127.0.0.1:9", id=f"r{n}", command=(program,), interval=3600) for n in range(40)]
        async with watching(*aims) as watcher:
            await until(lambda: watcher.events().count(LOADED) == 40)

    run(scenario())
    assert max(map(int, (tmp_path / "n").read_text().split())) <= MAX_COMMAND_PROBES
