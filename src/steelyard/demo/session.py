"""The traffic and the guided minute, watched until Ctrl-C: the first ends the demo in order, the second at once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from ..control.supervisor.supervisor import Supervisor
from . import screen
from .corpus import MODEL_NAME
from .replica.endpoints import EMBEDDINGS_PATH
from .replica_processes import HOST, ReplicaProcesses
from .settings import DEFAULT_PORT, DemoOptions
from .steps import StepResult
from .tour import GuidedTour
from .traffic import LOAD_SHARE

REDRAW_SECONDS, PRINT_SECONDS = 0.5, 2.0
POLL_SECONDS = 0.02
FREE_RUNNING_TITLE = "traffic goes on"
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count


class DemoSession:
    def __init__(self, console: Console, guide: GuidedTour) -> None:
        self._console, self.guide = console, guide
        self._supervisor, self._traffic = guide.supervisor, guide.traffic
        self._step = FREE_RUNNING_TITLE
        guide.say = self._say

    async def run(self, options: DemoOptions, interrupt: Interrupt, began: float) -> float:
        """Returns the seconds of traffic."""
        stats = self._traffic.start()
        watching = [asyncio.create_task(work) for work in (self._watch(), self._first_answer(began))]
        guiding = asyncio.create_task(self._guide(options))
        try:
            ending = asyncio.create_task(interrupt.wait(options.seconds))
            await asyncio.wait([ending, guiding], return_when=asyncio.FIRST_COMPLETED)
            if guiding.done():
                guiding.result()  # raises what went wrong
            await ending
            guiding.cancel()
            await asyncio.wait([guiding])
            seconds = time.monotonic() - stats.began
            await self._traffic.stop()
        finally:
            for task in (*watching, guiding):
                task.cancel()
            await asyncio.wait([*watching, guiding])
            await self.guide.close()
        return seconds

    async def _guide(self, options: DemoOptions) -> None:
        if options.guided:
            await self.guide.run(options.seconds)
            self._step = FREE_RUNNING_TITLE
            if options.seconds is None:
                text = f"\nthat was the guided minute: {self.guide.comparison()}\n{FREE_RUNNING_TITLE} until Ctrl-C"
                self._console.print(text, soft_wrap=True, markup=False)

    async def _first_answer(self, began: float) -> None:
        while not self._traffic.stats.latency.count:
            await asyncio.sleep(POLL_SECONDS)
        self._console.print(f"first answer {time.monotonic() - began:.1f} s after the start", markup=False)

    async def _watch(self) -> None:
        traffic, supervisor = self._traffic, self._supervisor
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            while True:
                await asyncio.sleep(PRINT_SECONDS)
                said = screen.line(supervisor.status(), traffic.stats, traffic.part_stats, time.monotonic())
                self._console.print(said, soft_wrap=True, markup=False, highlight=False)
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                status, now = supervisor.status(), time.monotonic()
                live.update(screen.live(status, traffic.stats, traffic.part_stats, now, self._step), refresh=True)
                await asyncio.sleep(REDRAW_SECONDS)

    def _say(self, outcome: StepResult) -> None:
        self._step = outcome.step.title
        since = time.monotonic() - self._traffic.stats.began
        self._console.print(screen.announcement(outcome, since), soft_wrap=True, highlight=False)


def print_introduction(console: Console, supervisor: Supervisor, fleet: ReplicaProcesses, rate: float) -> None:
    port = supervisor.addresses[0].port
    url = f"http://{HOST}:{port}"
    if port != DEFAULT_PORT and supervisor.config.listen_addresses[0].port != port:
        console.print(f"port {DEFAULT_PORT} is in use, so the gateway has another one")
    console.print(screen.introduction(url, fleet.values(), rate, LOAD_SHARE))
    body = f'{{"model": "{MODEL_NAME}", "input": "heavy rain and wind"}}'
    curl = f"curl -i {url}{EMBEDDINGS_PATH} -H 'content-type: application/json' -d '{body}'"
    for title, typed in (
        ("the dashboard, in a browser:", f"http://{supervisor.admin_address}/"),
        ("the same in another terminal:", f"steelyard top --admin http://{supervisor.admin_address}"),
        ("a request of your own; Ctrl-C here ends the demo:", curl),
    ):
        console.print(title)
        console.print(f"  {typed}", style="cyan", soft_wrap=True, markup=False, highlight=False)


class Interrupt:
    """While the demo starts, its task is cancelled; after `started`, only `given` is set."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.given = asyncio.Event()
        self._starting = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._signal)

    def started(self) -> None:
        self._starting = None

    async def wait(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.given.wait(), seconds)

    def _signal(self) -> None:
        if self.given.is_set():
            self._console.show_cursor()
            os._exit(EXIT_INTERRUPTED)  # all our processes end with us
        self.given.set()
        if self._starting is not None:
            self._starting.cancel()
        else:
            self._console.print("waiting for the last answers; Ctrl-C again ends without them")
