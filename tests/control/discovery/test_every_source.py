"""One suite over every source of the table: what the discoverer relies on, whoever wrote the source.

A new source needs a stage here: how to make the place it looks at say something, nothing, nonsense, or not answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Protocol

import pytest

from steelyard.config import Config, DiscoveryConfig, ModelConfig
from steelyard.config.rules.model import model_problems
from steelyard.config.sections.discovery import DISCOVERY_KINDS
from steelyard.control.discovery import DiscoveryError, DiscoveryResult, Source
from steelyard.control.discovery import file as file_module
from steelyard.control.discovery.dns import resolver
from steelyard.control.discovery.dns.config import DnsDiscovery
from steelyard.control.discovery.file import FileDiscovery
from tests.docs.test_docs import ROOT, blocks
from tests.harness.processes import free_port

from .name_server import NameServer, name_server
from .naming import ids
from .running import run

ONE, TWO = "10.0.0.1", "10.0.0.2"


class Stage(Protocol):
    settings: DiscoveryConfig
    where: str  # in its description, …
    word: str  # … which begins so; of those of the table, with their kind

    def name(self, *hosts: str) -> None:
        """These, each at port 8000; none: it exists and names nothing."""

    def break_down(self) -> None:
        """It cannot be asked."""

    def talk_nonsense(self) -> None: ...


class FileStage:
    word = "file"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "replicas.yaml"
        self.where = str(self.path)
        self.settings: FileDiscovery = FileDiscovery(path=self.where)

    def name(self, *hosts: str) -> None:
        self.path.write_text("replicas: [" + ", ".join(f"'http://{host}:8000'" for host in hosts) + "]")

    def break_down(self) -> None:
        self.path.unlink(missing_ok=True)

    def talk_nonsense(self) -> None:
        self.path.write_bytes(b"\x00\xff- {")


class DnsStage:
    word = "dns"

    def __init__(self, server: NameServer) -> None:
        self.server, self.where = server, "llama.test"
        self.settings = DnsDiscovery(name="llama.test", port=8000, name_server=server.server)

    def name(self, *hosts: str) -> None:
        self._reset()
        self.server.say("llama.test", "A", *hosts)

    def break_down(self) -> None:
        self._reset()
        self.server.rcodes = {("llama.test", kind): "SERVFAIL" for kind in ("A", "AAAA")}

    def talk_nonsense(self) -> None:
        self._reset()
        self.server.garbage = True

    def _reset(self) -> None:
        self.server.garbage, self.server.rcodes = False, {}


class ServiceStage(DnsStage):
    def __init__(self, server: NameServer) -> None:
        super().__init__(server)
        self.settings = DnsDiscovery(name="_http._tcp.llama.test", record_type="srv", name_server=server.server)

    def name(self, *hosts: str) -> None:
        self._reset()
        self.server.say(self.settings.name, "SRV", *(f"0 1 8000 h{host}." for host in hosts))
        for host in hosts:
            self.server.say(f"h{host}", "A", host)

    def break_down(self) -> None:
        self._reset()
        self.server.rcodes = {(self.settings.name, "SRV"): "SERVFAIL"}


@asynccontextmanager
async def with_file(folder: Path) -> AsyncIterator[Stage]:
    yield FileStage(folder)


@asynccontextmanager
async def with_dns(folder: Path) -> AsyncIterator[Stage]:
    async with name_server() as server:
        yield DnsStage(server)


@asynccontextmanager
async def with_service(folder: Path) -> AsyncIterator[Stage]:
    async with name_server() as server:
        yield ServiceStage(server)


class OwnStage:
    """The source of a user's own that docs/discovery.md shows."""

    word = "list"

    def __init__(self, folder: Path, port: int) -> None:
        (text,) = [block.text for block in blocks(ROOT / "docs/discovery.md") if block.saved_as == "http_list.py"]
        (folder / "http_list.py").write_text(text)
        spec = spec_from_file_location("http_list", folder / "http_list.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["http_list"] = module_from_spec(spec)
        spec.loader.exec_module(module)
        self.where = f"http://127.0.0.1:{port}/"
        self.settings: DiscoveryConfig = module.HttpList(url=self.where)
        self.body, self.status = b"[]", 200

    def name(self, *hosts: str) -> None:
        self.body, self.status = json.dumps([f"http://{host}:8000" for host in hosts]).encode(), 200

    def break_down(self) -> None:
        self.status = 500

    def talk_nonsense(self) -> None:
        self.body, self.status = b"\x00\xff- {", 200

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {self.status} Said\r\ncontent-length: {len(self.body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + self.body)
        writer.close()


@asynccontextmanager
async def with_own(folder: Path) -> AsyncIterator[Stage]:
    stage = OwnStage(folder, port := free_port())
    server = await asyncio.start_server(stage.answer, "127.0.0.1", port)
    try:
        yield stage
    finally:
        server.close()
        del sys.modules["http_list"]


STAGES: dict[str, list[Callable[[Path], AbstractAsyncContextManager[Stage]]]] = {
    "file": [with_file],
    "dns": [with_dns, with_service],
}
ALL = [*(stage for kind in DISCOVERY_KINDS for stage in STAGES.get(kind, ())), with_own]

Staged = Callable[[Path], AbstractAsyncContextManager[Stage]]
every_source = pytest.mark.parametrize("staged", ALL, ids=lambda staged: staged.__name__.removeprefix("with_"))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "POLL_INTERVAL_SECONDS", 0.02)


def hosts(found: DiscoveryResult) -> str:
    return ids(found.replicas).replace(":8000", "")


async def problem_of(source: Source) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resolver, "QUERY_TIMEOUT_SECONDS", 0.5)  # nonsense is as good as silence
        with pytest.raises(DiscoveryError) as problem:
            await source.poll()
    return str(problem.value)


def test_every_source_has_a_stage_and_is_called_by_its_kind() -> None:
    assert set(STAGES) == set(DISCOVERY_KINDS)
    assert {FileStage.word, DnsStage.word} == set(DISCOVERY_KINDS)


@every_source
def test_its_struct_says_what_it_is(staged: Staged, tmp_path: Path) -> None:
    async def work() -> None:
        async with staged(tmp_path) as stage:
            assert isinstance(stage.settings.open(), Source)
            said = stage.settings.describe()
            assert said.startswith(f"{stage.word} ")
            assert stage.where in said
            assert said.isprintable()
            assert not list(stage.settings.problems(()))

    run(work())


@every_source
def test_what_it_names_keeps_the_rules_of_a_configuration(staged: Staged, tmp_path: Path) -> None:
    async def work() -> None:
        async with staged(tmp_path) as stage:
            stage.name(ONE, TWO)
            found = await stage.settings.open().poll()
            assert hosts(found) == f"{ONE} {TWO}"
            assert found.note == ""
            assert found.ttl is None or found.ttl >= 0
            assert not list(model_problems((), ModelConfig(replicas=found.replicas), Config(models={})))

    run(work())


@every_source
def test_what_did_not_change_is_the_same(staged: Staged, tmp_path: Path) -> None:
    async def work() -> None:
        async with staged(tmp_path) as stage:
            stage.name(ONE, TWO)
            source = stage.settings.open()
            assert await source.poll() == await source.poll()

    run(work())


@every_source
def test_what_changed_is_seen_at_the_next_look(staged: Staged, tmp_path: Path) -> None:
    async def work() -> None:
        async with staged(tmp_path) as stage:
            source = stage.settings.open()
            for names in ([ONE], [ONE, TWO], [TWO]):
                stage.name(*names)
                assert hosts(await source.poll()) == " ".join(names)

    run(work())


@every_source
def test_nothing_is_nothing(staged: Staged, tmp_path: Path) -> None:
    async def work() -> None:
        async with staged(tmp_path) as stage:
            stage.name(ONE)
            source = stage.settings.open()
            await source.poll()
            stage.name()
            assert (await source.poll()).replicas == ()

    run(work())


@every_source
def test_what_cannot_be_asked_or_talks_nonsense_is_told_in_one_sentence(staged: Staged, tmp_path: Path) -> None:
    async def work() -> None:
        async with staged(tmp_path) as stage:
            source = stage.settings.open()
            for fault in (stage.break_down, stage.talk_nonsense):
                fault()
                first = await problem_of(source)
                stage.name(ONE)
                assert hosts(await source.poll()) == ONE
                fault()
                later = await problem_of(source)
                for problem in (first, later):
                    assert problem
                    assert problem.isprintable()
                stage.name(ONE, TWO)
                assert hosts(await source.poll()) == f"{ONE} {TWO}"

    run(work())


@every_source
def test_looking_and_waiting_can_be_cancelled(staged: Staged, tmp_path: Path) -> None:
    async def work() -> None:
        async with staged(tmp_path) as stage:
            stage.name(ONE)
            source = stage.settings.open()
            for turns in range(8):
                task = asyncio.ensure_future(source.poll() if turns % 2 else source.wait_for_change())
                for _ in range(turns // 2):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert hosts(await source.poll()) == ONE

    run(work())
