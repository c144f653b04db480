"""The demo from start to end: replicas, gateway, traffic, table; and all of it gone afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from random import Random

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..control.supervisor import Supervisor
from . import screen
from .corpus import MODEL
from .fleet import ReplicaProcess, replicas
from .interrupt import Interrupt
from .settings import HOST, PORT, Options, configuration
from .tally import Tally
from .tied import command
from .traffic import LOAD, PATH, Traffic, capacity

DRAWN_EVERY, SAID_EVERY = 0.5, 2.0  # seconds
SOON = 1.0  # seconds that nobody minds
DRAIN = 2.0  # seconds for what somebody else has sent
FAILED = 1


async def run(options: Options, console: Console) -> int:
    """Returns the exit code: 0, or 1 if a request failed."""
    interrupt = Interrupt(console)
    configuration({}, options)  # what cannot be is said before anything is started
    try:
        console.print(Text("starting three replicas of unequal speed …", style="dim"))
        async with replicas() as fleet:
            console.print(Text("measuring what they can do together …", style="dim"))
            rate = LOAD * await capacity(fleet)
            config = configuration({replica.name: replica.url for replica in fleet}, options)
            supervisor = Supervisor(config, command=command("steelyard.gateway"))
            await supervisor.start()
            try:
                interrupt.started()
                _introduce(console, supervisor, fleet, rate)
                tally, seconds = await _drive(console, supervisor, fleet, rate, options, interrupt)
            finally:
                await supervisor.stop(DRAIN)
    except asyncio.CancelledError:
        if not interrupt.given.is_set():
            raise
        console.print("stopped before it began")
        return 0
    console.print(screen.summary(fleet, tally, seconds, config.models[MODEL].policy))
    _farewell(console, config.models[MODEL].policy)
    return FAILED if tally.failures else 0


async def _drive(
    console: Console,
    supervisor: Supervisor,
    fleet: Sequence[ReplicaProcess],
    rate: float,
    options: Options,
    interrupt: Interrupt,
) -> tuple[Tally, float]:
    """Traffic, watched, until it is enough. What came of it, and how long it went on."""
    traffic = Traffic(HOST, supervisor.addresses[0].port, rate, Random(7))
    tally = traffic.start()
    watch = asyncio.create_task(_watch(console, supervisor, fleet, tally))
    try:
        await interrupt.wait(options.seconds)
        seconds = time.monotonic() - tally.began
        stopping = asyncio.create_task(traffic.stop())
        done, _ = await asyncio.wait([stopping], timeout=SOON)
        if not done:
            console.print("waiting for the last answers; Ctrl-C ends without them")
        await stopping
    finally:
        watch.cancel()
        await asyncio.wait([watch])
    return tally, seconds


async def _watch(console: Console, supervisor: Supervisor, fleet: Sequence[ReplicaProcess], tally: Tally) -> None:
    if not console.is_terminal or console.is_dumb_terminal:
        while True:
            await asyncio.sleep(SAID_EVERY)
            console.print(screen.line(fleet, supervisor.status(), tally, time.monotonic()), soft_wrap=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(screen.live(fleet, supervisor.status(), tally, time.monotonic()), refresh=True)
            await asyncio.sleep(DRAWN_EVERY)


def _introduce(console: Console, supervisor: Supervisor, fleet: Sequence[ReplicaProcess], rate: float) -> None:
    port = supervisor.addresses[0].port
    url = f"http://{HOST}:{port}"
    if supervisor.config.addresses[0].port != port:
        console.print(f"port {PORT} is in use, so the gateway has another one")
    console.print(screen.introduction(url, supervisor.config.models[MODEL].policy, fleet, rate, LOAD))
    body = f'{{"model": "{MODEL}", "input": "heavy rain and wind"}}'
    curl = f"  curl -i {url}{PATH} -H 'content-type: application/json' -d '{body}'"
    console.print("talk to it from another terminal; Ctrl-C here ends the demo:")
    console.print(curl, style="cyan", soft_wrap=True, markup=False)
    if supervisor.admin_address is not None:
        look = f"  curl http://{supervisor.admin_address}/v1/fleet"
        console.print("how each replica stands, and why:")
        console.print(look, style="cyan", soft_wrap=True, markup=False)


def _farewell(console: Console, policy: str) -> None:
    other = "round_robin" if policy != "round_robin" else "least_work"
    hints = {
        f"steelyard demo --policy {other}": "the same with another policy; `steelyard policies` lists them",
        "steelyard serve --help": "the gateway in front of replicas of your own",
    }
    console.print("\nwhat to try next:")
    for typed, what in hints.items():
        console.print(f"  {typed:<36} {what}", soft_wrap=True, markup=False)
