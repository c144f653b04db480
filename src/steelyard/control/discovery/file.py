"""Replicas that a file lists. Whatever writes it, a script or Kubernetes, need not know of Steelyard."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ...config import Discovery, ReplicaConfig
from ...documents import DocumentError
from ...units import show_size
from ..watch import Watch
from .base import MOST, DiscoveryError, Found, Source, some, too_many
from .file_forms import replicas_of

EVERY = 0.5  # seconds between two looks at whether it changed
LARGEST = 16 << 20  # bytes
TRIES = 20  # reads until two in a row are the same


class FileSource(Source):
    """Read when it has changed and holds still, and now and then all the same."""

    def __init__(self, settings: Discovery) -> None:
        super().__init__(settings)
        self._watch = Watch([settings.file])
        self._holds_still = True  # nobody knows, but something is better than nothing at the start
        self._text = b""
        self._found: Found | None = None  # in that text

    def describe(self) -> str:
        return f"file {self.settings.file}"

    async def look(self) -> Found:
        self._watch.forget_changes()
        text = await self._read()
        if self._found is None or text != self._text:
            # Apart: a long list takes YAML a second or two, and probes do not wait so long.
            replicas = await asyncio.to_thread(_parsed, text, self.settings.file, self.settings.scheme)
            self._found, self._text = Found(replicas), text
        return self._found

    async def news(self) -> None:
        while not self._watch.look():
            await asyncio.sleep(EVERY)
        self._holds_still = True

    async def _read(self) -> bytes:
        """Its text. If that changed without `news`, it may be half written: then it is read until it stays the same."""
        still, self._holds_still = self._holds_still, False
        text = await asyncio.to_thread(_bytes_of, self.settings.file)
        for _ in range(TRIES):
            if still or text == self._text:
                return text
            await asyncio.sleep(EVERY)
            before, text = text, await asyncio.to_thread(_bytes_of, self.settings.file)
            still = text == before
        raise DiscoveryError(f"{self.settings.file}: somebody writes to it all the time")


def _bytes_of(path: str) -> bytes:
    try:
        if Path(path).exists() and not Path(path).is_file():  # a pipe would make us wait for somebody to write
            raise DiscoveryError(f"{path}: is not a regular file")
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in its name
        raise DiscoveryError(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if len(text) > LARGEST:
        raise DiscoveryError(f"{path}: larger than {show_size(LARGEST)}")
    return text


def _parsed(text: bytes, path: str, scheme: str) -> tuple[ReplicaConfig, ...]:
    try:
        replicas = replicas_of(text.decode("utf-8"), path, scheme)
    except UnicodeDecodeError:
        raise DiscoveryError(f"{path}: not a UTF-8 text file") from None
    except DocumentError as problem:
        raise DiscoveryError(some(list(problem.lines))) from None
    if len(replicas) > MOST:
        raise too_many(len(replicas))
    return replicas
