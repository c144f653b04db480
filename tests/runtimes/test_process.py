"""The suite over processes of this machine, on both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings
from steelyard.runtimes.process.runtime import ProcessRuntime

from . import commands
from .driving import gateway, opened, run
from .suite import RuntimeSuite


class TestProcesses(RuntimeSuite):
    def run(self, work: Coroutine[Any, Any, None]) -> None:
        run(work)

    @pytest.fixture(autouse=True)
    def _logs(self, tmp_path: Path) -> None:
        self.log = tmp_path

    @pytest.fixture
    def name(self) -> Iterator[str]:
        with gateway() as name:
            yield name

    def opened(self, name: str) -> AbstractAsyncContextManager[ProcessRuntime]:
        return opened(name)

    def settings(self, does: str) -> Settings:
        return commands.settings(does, self.log)


class TestProcessesOnTheLoopOfThePythonLibrary(TestProcesses):
    def run(self, work: Coroutine[Any, Any, None]) -> None:
        run(work, asyncio.new_event_loop)
