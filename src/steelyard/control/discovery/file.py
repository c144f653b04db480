"""Replicas that a file lists, written by a script, Kubernetes or Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ...config import ReplicaConfig
from ...config.files import unreadable_problems
from ...config.sections.base import described
from ...config.sections.discovery import DiscoverySection
from ...documents import DocumentError, Key, Problem
from ...units import format_size
from ..file_watcher import FileWatcher
from .base import MAX_REPLICAS_PER_SOURCE, DiscoveryError, DiscoveryResult, Source, list_some, too_many_replicas
from .file_formats import parse_replicas

POLL_INTERVAL_SECONDS = 0.5  # between two checks whether it changed
MAX_FILE_BYTES = 16 << 20
MAX_READ_ATTEMPTS = 20  # until two in a row are the same


class FileDiscovery(DiscoverySection, frozen=True):
    """Replicas that a file lists; it is read again when it changes."""

    __renamed__: ClassVar[dict[str, str]] = {"file": "path"}
    path_fields = ("path",)

    path: Annotated[str, described("YAML or JSON, ours or Prometheus' (`file_sd`)")]
    scheme: Annotated[Literal["http", "https"], described("default scheme")] = "http"

    def describe(self) -> str:
        return f"file {self.path}"

    def problems(self, key: Key) -> Iterator[Problem]:
        if not self.path:
            yield Problem((*key, "path"), "name a file")

    def file_problems(self, key: Key) -> Iterator[Problem]:
        if self.path:
            yield from unreadable_problems((*key, "path"), self.path)

    def open(self) -> FileSource:
        return FileSource(self)


class FileSource(Source):
    def __init__(self, settings: FileDiscovery) -> None:
        self._path, self._scheme = settings.path, settings.scheme
        self._watch = FileWatcher([settings.path])
        self._holds_still = True  # unknown at the start, when something is better than nothing
        self._text = b""
        self._found: DiscoveryResult | None = None  # in that text

    async def poll(self) -> DiscoveryResult:
        self._watch.mark_current()
        text = await self._read()
        if self._found is None or text != self._text:
            # In a thread: YAML takes seconds for a long list.
            replicas = await asyncio.to_thread(_parse, text, self._path, self._scheme)
            self._found, self._text = DiscoveryResult(replicas), text
        return self._found

    async def wait_for_change(self) -> None:
        while not self._watch.poll():
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        self._holds_still = True

    async def _read(self) -> bytes:
        """A change without `wait_for_change` may be half written: then it is read until it stays the same."""
        still, self._holds_still = self._holds_still, False
        text = await asyncio.to_thread(read_file, self._path)
        for _ in range(MAX_READ_ATTEMPTS):
            if still or text == self._text:
                return text
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
            before, text = text, await asyncio.to_thread(read_file, self._path)
            still = text == before
        raise DiscoveryError(f"{self._path}: it keeps changing while it is read")


def read_file(path: str) -> bytes:
    try:
        if Path(path).exists() and not Path(path).is_file():  # a pipe would block
            raise DiscoveryError(f"{path}: is not a regular file")
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in its name
        raise DiscoveryError(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if len(text) > MAX_FILE_BYTES:
        raise DiscoveryError(f"{path}: larger than {format_size(MAX_FILE_BYTES)}")
    return text


def _parse(text: bytes, path: str, scheme: str) -> tuple[ReplicaConfig, ...]:
    try:
        replicas = parse_replicas(text.decode("utf-8"), path, scheme)
    except UnicodeDecodeError:
        raise DiscoveryError(f"{path}: not a UTF-8 text file") from None
    except DocumentError as problem:
        raise DiscoveryError(list_some(list(problem.lines))) from None
    if len(replicas) > MAX_REPLICAS_PER_SOURCE:
        raise too_many_replicas(len(replicas))
    return replicas
