"""The demo from start to end: replicas, gateway, traffic, the guided minute; and all of it gone afterwards."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from random import Random

from rich.console import Console
from rich.text import Text

from ..config import Config
from ..control.errors import ListenError, StartError
from ..control.supervisor import Supervisor
from .corpus import MODEL
from .fleet import HOST, PACES, Fleet, replicas
from .interrupt import Interrupt
from .model import check_installed
from .scratch import scratch
from .settings import Options, Ports, configuration, ports, usual_ports
from .show import Show, introduce
from .summary import NEXT, summary
from .tied import command
from .traffic import LOAD, Traffic, capacity

DRAIN = 2.0  # seconds for what somebody else has sent
GENEROUS = 25.0  # promised: so many times what a request takes on average at the fastest
FAILED = 1


async def run(options: Options, console: Console) -> int:
    """Returns the exit code: 0, or 1 if a request failed."""
    began = time.monotonic()
    check_installed()
    logging.getLogger("steelyard").addHandler(logging.NullHandler())  # what happens is shown, not logged
    interrupt = Interrupt(console)
    try:
        with usual_ports() as usual, scratch() as folder:
            at = ports(options.port, usual=usual)
            configuration({}, options, at, folder)  # what cannot be is said before anything is started
            console.print(Text("starting three replicas of unequal speed …", style="dim"))
            async with replicas() as fleet:
                return await _serve(fleet, options, at, folder, interrupt, console, began)
    except asyncio.CancelledError:
        if not interrupt.given.is_set():
            raise
        console.print("stopped before it began")
        return 0
    except (OSError, EOFError) as problem:
        raise StartError(f"the demo cannot go on: {problem}") from None


async def _serve(
    fleet: Fleet, options: Options, at: Ports, folder: Path, interrupt: Interrupt, console: Console, began: float
) -> int:
    console.print(Text("measuring what they can do together …", style="dim"))
    most = await capacity(fleet)
    urls = {replica.name: replica.url for replica in fleet}
    gateway = Gateway(configuration(urls, options, at, folder, promised(most)))
    try:
        supervisor = await gateway.start()
    except ListenError:  # they were free when we looked
        gateway = Gateway(configuration(urls, options, Ports(options.port or 0, 0), folder, promised(most)))
        supervisor = await gateway.start()
    try:
        interrupt.started()
        introduce(console, supervisor, fleet, LOAD * most)
        traffic = Traffic(HOST, supervisor.addresses[0].port, LOAD * most, Random(7))
        show = Show(console, supervisor, fleet, traffic, gateway.reconfigure, folder)
        seconds = await show.run(options, interrupt, began)
        policy = supervisor.config.models[MODEL].policy
    finally:
        await supervisor.stop(DRAIN)
    console.print(summary(show.guide.outcomes, show.guide.comparison(), traffic.tally, seconds, policy))
    _farewell(console)
    return FAILED if traffic.tally.failures else 0


class Gateway:
    """As `steelyard serve` runs it, but its workers end with us."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def start(self) -> Supervisor:
        supervisor = Supervisor(self._config, reread=lambda: self._config, command=command("steelyard.gateway"))
        await supervisor.start()
        return supervisor

    def reconfigure(self, config: Config) -> None:
        self._config = config


def promised(capacity: float) -> float:
    """Seconds for a request, in whole tenths, that this machine can hold."""
    together = sum(PACES["fast"] / pace for pace in PACES.values())  # if the fastest does 1
    return max(0.1, round(GENEROUS * together / capacity, 1))


def _farewell(console: Console) -> None:
    console.print("\nwhat to try next:")
    for typed, what in NEXT.items():
        console.print(f"  {typed:<28} {what}", soft_wrap=True, markup=False)
