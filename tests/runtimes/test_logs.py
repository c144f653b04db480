"""What replicas print: where it goes, how much of it stays, and how its end is shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from steelyard.documents import Size
from steelyard.runtimes import ReplicaSpec, ReplicaStartError
from steelyard.runtimes.process import log_files
from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings
from steelyard.system import state_directory

from .commands import shell
from .driving import ends, gateway, opened, run, until, until_said


@pytest.fixture
def name() -> Iterator[str]:
    with gateway() as name:
        yield name


# ---------------------------------------------------------------------- where it goes


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"STATE_DIRECTORY": "/var/lib/steelyard", "XDG_STATE_HOME": "/x"}, "/var/lib/steelyard"),
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b"}, "/var/lib/a"),
        ({"XDG_STATE_HOME": "/x"}, "/x/steelyard"),
        ({"XDG_STATE_HOME": "not/whole"}, "/home/me/.local/state/steelyard"),
        ({}, "/home/me/.local/state/steelyard"),
    ],
)
def test_the_folder_for_state(variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (variables | {"HOME": "/home/me"}).items():
        monkeypatch.setenv(name, value)
    assert state_directory() == Path(folder)


@given(some.lists(some.text() | some.sampled_from(["..", ".", "a/b", "a%2Fb", "\0", "-rf", "x" * 300]), unique=True))
def test_every_name_has_a_file_of_its_own_inside_the_folder(names: list[str]) -> None:
    files = [log_files.log_file("/logs", "gateway", name, name) for name in names]
    assert len(set(files)) == len(files)
    for file in files:
        assert file.parts[:3] == ("/", "logs", "gateway")
        assert len(file.parts) == 5
        assert all(part.isprintable() and not part.startswith(".") and len(part) < 240 for part in file.parts)


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = log_files.log_file(str(tmp_path / "new"), "gateway", "a/model", "one")
        os.close(log_files.open_log(path))
    finally:
        os.umask(before)
    assert path == tmp_path / "new" / "gateway" / "a%2Fmodel" / "one.log"
    assert path.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in path.parents[:3]} == {0o700}


def test_a_link_is_not_followed(name: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    path = log_files.log_file(str(tmp_path), name, "m", "one")
    path.parent.mkdir(parents=True)
    path.symlink_to(precious)

    async def story() -> None:
        async with opened(name) as runtime:
            with pytest.raises(ReplicaStartError, match="cannot be written"):
                await runtime.start(
                    ReplicaSpec("m", "one", Settings(command="echo hello", log_directory=str(tmp_path)))
                )

    run(story())
    assert precious.read_text() == "mine"


# ---------------------------------------------------------------------- how much stays


def test_a_long_log_is_cut_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    writer = log_files.open_log(path)
    for number in range(2000):
        os.write(writer, b"line %06d\n" % number)
    assert log_files.needs_rotation(str(path), 10000)
    log_files.rotate(str(path), 10000)
    before = Path(f"{path}.1")
    assert (path.stat().st_size, before.stat().st_size) == (0, 5000)
    assert before.stat().st_mode & 0o777 == 0o600
    assert log_files.last_lines(str(path), 0, 2) == ("line 001998", "line 001999")
    os.write(writer, b"after\n")
    os.close(writer)
    assert path.read_bytes() == b"after\n"
    assert log_files.last_lines(str(path), 0, 2) == ("line 001999", "after")
    assert not log_files.needs_rotation(str(path), 10000)


def test_cutting_what_is_gone_does_nothing(tmp_path: Path) -> None:
    log_files.rotate(str(tmp_path / "away.log"), 10)
    assert not log_files.needs_rotation(str(tmp_path / "away.log"), 10)
    assert list(tmp_path.iterdir()) == []


def test_a_chatty_replica_is_bounded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.runtimes.process.runtime.LOG_CHECK_INTERVAL_SECONDS", 0.01)

    async def story() -> None:
        async with opened(name) as runtime:
            script = "head -c 300000 /dev/zero | tr '\\0' 'x'; echo; echo up; exec sleep 1000"
            settings = Settings(command=shell(script), log_directory=str(tmp_path), max_log_size=Size(20000))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            await until_said(runtime, started, "up")
            path = Path(started.log_path)
            await until(lambda: path.stat().st_size <= 10000)
            assert sum(file.stat().st_size for file in path.parent.iterdir()) <= 20000
            assert runtime.log_tail("m", "one")[-1] == "up"

    run(story())


def test_what_was_said_last_by_one_that_ended_is_cut_too(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            script = "head -c 300000 /dev/zero | tr '\\0' 'x'; echo; echo so long"
            settings = Settings(command=shell(script), log_directory=str(tmp_path), max_log_size=Size(20000))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            heard = ends(runtime)
            await until(lambda: heard)
            await until(lambda: Path(started.log_path).stat().st_size <= 10000)
            assert runtime.log_tail("m", "one")[-1] == "so long"

    run(story())


def test_only_the_last_few_logs_of_ended_replicas_are_kept(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            stays = await runtime.start(
                ReplicaSpec("m", "stays", Settings(command="sleep 1000", log_directory=str(tmp_path)))
            )
            os.utime(stays.log_path, (0, 0))
            for number in range(9):
                started = await runtime.start(
                    ReplicaSpec("m", str(number), Settings(command="echo x", log_directory=str(tmp_path)))
                )
                await until(lambda: heard and heard[-1].id == started.id)  # noqa: B023
                os.utime(started.log_path, (number, number))
            found = {path.name for path in Path(stays.log_path).parent.iterdir()}
            assert found == {
                "stays.log",
                "8.log",
                *(f"{number}.log" for number in range(8 - log_files.MAX_ENDED_LOGS, 8)),
            }

    run(story())


def test_two_gateways_of_a_name_do_not_share_a_log(name: str, tmp_path: Path) -> None:
    def says(word: str) -> Settings:
        return Settings(command=shell(f"echo {word}; exec sleep 1000"), log_directory=str(tmp_path))

    async def story() -> None:
        async with opened(name) as ours, opened(name) as others:
            a = await ours.start(ReplicaSpec("m", "p1", says("ours")))
            b = await others.start(ReplicaSpec("m", "p1", says("theirs")))
            assert (Path(a.log_path).name, Path(b.log_path).name) == ("p1.log", "p1#2.log")
            await until_said(ours, a, "ours")
            await until_said(others, b, "theirs")
            assert ours.log_tail("m", "p1") == ("ours",)
            await others.stop("m", "p1", timeout=20)
            again = await others.start(ReplicaSpec("m", "p1", says("more")))
            assert again.log_path == b.log_path  # nobody has it any more

    run(story())


def test_a_log_is_not_removed_while_anybody_writes_there(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as ours, opened(name) as others:
            stays = await ours.start(
                ReplicaSpec("m", "stays", Settings(command="sleep 1000", log_directory=str(tmp_path)))
            )
            os.utime(stays.log_path, (0, 0))
            heard = ends(others)
            for number in range(log_files.MAX_ENDED_LOGS + 3):
                await others.start(
                    ReplicaSpec("m", str(number), Settings(command="echo x", log_directory=str(tmp_path)))
                )
                await until(lambda: len(heard) > number)  # noqa: B023
            assert Path(stays.log_path).exists()
            assert not Path(stays.log_path).with_name("0.log").exists()

    run(story())


# ---------------------------------------------------------------------- how its end is shown


@pytest.mark.parametrize(
    ("octets", "shown"),
    [
        (b"", ()),
        (b"\n\n  \n", ()),
        (b"no end of line", ("no end of line",)),
        (b"a\r\nb\r\n", ("a", "b")),
        (b" 10%\r 50%\r100%\ndone\n", ("100%", "done")),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07text \x1b(Bx\n", ("red text x",)),
        (b"\x1b[2J\x1b[Hcleared\x08\x00\x7f\n", ("cleared",)),
        (b"tab\tstays\n", ("tab\tstays",)),
        ("größer → 模型\n".encode(), ("größer → 模型",)),
        (b"\xff\xfe junk\n", ("\ufffd\ufffd junk",)),
        (b"x" * 600, ("x" * 500 + "…",)),
    ],
)
def test_last_lines_are_for_people(octets: bytes, shown: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(octets)
    assert log_files.last_lines(str(tmp_path / "log"), 0, 20) == shown


@given(some.binary(max_size=500), some.integers(0, 600), some.integers(-1, 5))
def test_no_octets_are_too_strange(octets: bytes, begin: int, lines: int) -> None:
    path = Path(os.environ.get("TMPDIR", "/tmp"), f"steelyard-test-{os.getpid()}.log")
    try:
        path.write_bytes(octets)
        found = log_files.last_lines(str(path), begin, lines)
    finally:
        path.unlink()
    assert len(found) <= max(lines, 0)
    assert not any("\x1b" in line or "\n" in line or "\r" in line for line in found)


def test_only_the_end_is_read_and_only_from_where_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\n" + b"y" * 99 + b"\n" + b"new\n" * 3)
    assert log_files.last_lines(str(path), 104, 20) == ("new",) * 3
    assert log_files.last_lines(str(path), 104, 2) == ("new",) * 2
    with open(path, "r+b") as log:
        log.truncate(1 << 30)  # with a hole: it takes no room
        log.seek(0, 2)
        log.write(b"\nlast\n")
    assert log_files.last_lines(str(path), 0, 1) == ("last",)
