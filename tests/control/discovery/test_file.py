"""Real files: replaced, linked elsewhere, half written, emptied, gone."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from steelyard.control.discovery import DiscoveryError, DiscoveryResult
from steelyard.control.discovery import file as file_module
from steelyard.control.discovery.file import FileDiscovery, FileSource

from .naming import ids
from .running import WAIT_TIMEOUT_SECONDS, run


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(file_module, "POLL_INTERVAL_SECONDS", 0.02)
    return tmp_path / "replicas.yaml"


def listed(*hosts: str) -> str:
    return "".join(f"- http://{host}:80\n" for host in hosts)


def replace(path: Path, text: str) -> None:
    aside = path.with_name("aside")
    aside.write_text(text)
    aside.rename(path)


def source(path: Path) -> FileSource:
    return FileSource(FileDiscovery(path=str(path)))


async def after_news(file_source: FileSource) -> str:
    async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
        await file_source.wait_for_change()
        return ids((await file_source.poll()).replicas)


async def problem_of(file_source: FileSource) -> str:
    with pytest.raises(DiscoveryError) as problem:
        await file_source.poll()
    return str(problem.value)


def test_replaced_by_another(path: Path) -> None:
    async def work() -> None:
        path.write_text(listed("a"))
        file_source = source(path)
        assert ids((await file_source.poll()).replicas) == "a:80"
        replace(path, listed("a", "b"))
        assert await after_news(file_source) == "a:80 b:80"
        path.write_text(listed("c"))
        assert await after_news(file_source) == "c:80"

    run(work())


def test_a_link_that_leads_elsewhere_as_in_kubernetes(path: Path) -> None:
    async def work() -> None:
        folder = path.parent
        for version, host in (("..1", "a"), ("..2", "b")):
            (folder / version).mkdir()
            (folder / version / path.name).write_text(listed(host))
        (folder / "..data").symlink_to("..1")
        path.symlink_to(f"..data/{path.name}")
        file_source = source(path)
        assert ids((await file_source.poll()).replicas) == "a:80"
        (folder / "..new").symlink_to("..2")
        (folder / "..new").rename(folder / "..data")
        assert await after_news(file_source) == "b:80"

    run(work())


def test_a_file_that_comes_later(path: Path) -> None:
    async def work() -> None:
        file_source = source(path)
        assert await problem_of(file_source) == f"{path}: cannot be read: No such file or directory"
        replace(path, listed("a"))
        assert await after_news(file_source) == "a:80"

    run(work())


def test_without_news_it_is_read_all_the_same(path: Path) -> None:
    async def work() -> None:
        path.write_text(listed("a"))
        file_source = source(path)
        await file_source.poll()
        replace(path, listed("b"))
        assert ids((await file_source.poll()).replicas) == "b:80"

    run(work())


def test_nobody_takes_what_is_half_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that come while it is written: every part is a valid list, and shorter than the whole."""

    async def work() -> None:
        hosts = [f"h{number}" for number in range(10)]
        path.write_text(listed(*hosts))
        file_source = source(path)
        await file_source.poll()
        parts = [listed(*hosts[:count]).encode() for count in (0, 1, 3, 7)]
        whole = listed(*hosts, "last").encode()
        reads = iter([*parts, whole, whole])
        monkeypatch.setattr(file_module, "read_file", lambda path: next(reads))
        assert len((await file_source.poll()).replicas) == 11
        assert next(reads, None) is None

    run(work())


def test_somebody_writes_all_the_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        path.write_text(listed("a"))
        file_source = source(path)
        await file_source.poll()
        numbers = iter(range(1000))
        monkeypatch.setattr(file_module, "POLL_INTERVAL_SECONDS", 0.0)
        monkeypatch.setattr(file_module, "read_file", lambda path: listed(f"h{next(numbers)}").encode())
        assert "it keeps changing while it is read" in await problem_of(file_source)

    run(work())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"\xff\xfe\x00", "not a UTF-8 text file"),
        (b"- {url: ", ":1: not valid YAML"),
        (b"\x00\x01", "not valid YAML"),
        (b"- http://a:1\n- nonsense\n", ":2: [1]: 'nonsense' is not the URL of a replica"),
        (b"- 1\n- 2\n- 3\n- 4\n- 5\n", "; and 2 more"),
    ],
)
def test_garbage(path: Path, content: bytes, said: str) -> None:
    async def work() -> None:
        path.write_text(listed("a"))
        file_source = source(path)
        await file_source.poll()
        path.write_bytes(content)
        problem = await problem_of(file_source)
        assert problem.startswith(str(path))
        assert said in problem
        assert "\n" not in problem
        assert await problem_of(file_source) == problem
        path.write_text(listed("a"))
        assert ids((await file_source.poll()).replicas) == "a:80"

    run(work())


def test_no_list_at_all(path: Path) -> None:
    async def work() -> None:
        path.write_text("[]")
        assert await source(path).poll() == DiscoveryResult(())
        path.unlink()
        path.mkdir()
        assert await problem_of(source(path)) == f"{path}: is not a regular file"
        path.rmdir()
        os.mkfifo(path)
        assert await problem_of(source(path)) == f"{path}: is not a regular file"

    run(work())


def test_bounds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(file_module, "MAX_REPLICAS_PER_SOURCE", 5)
        path.write_text(listed(*"abcdef"))
        assert await problem_of(source(path)) == "it names 6 replicas, and at most 10,000 are taken"
        monkeypatch.setattr(file_module, "MAX_FILE_BYTES", 1024)
        path.write_text("#" * 1025)
        assert await problem_of(source(path)) == f"{path}: larger than 1 KiB"

    run(work())


def test_what_did_not_change_is_not_read_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        path.write_text(listed("a"))
        file_source = source(path)
        found = await file_source.poll()
        os.utime(path, (1, 1))
        monkeypatch.setattr(file_module, "parse_replicas", lambda *_: pytest.fail("read again"))
        assert await file_source.poll() is found

    run(work())
