"""The demo from start to end; nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from rich.console import Console
from rich.text import Text

from ..config import Config
from ..control.errors import ListenError, StartError
from ..control.supervisor.supervisor import Supervisor
from .corpus import MODEL_NAME
from .die_with_parent import tied_command
from .replica.model import check_installed
from .replica_processes import HOST, SLOWDOWNS, ReplicaProcesses, running_replicas
from .screen import NEXT_STEPS, summary
from .session import DemoSession, Interrupt, print_introduction
from .settings import DemoOptions, Ports, choose_ports, claim_default_ports, configuration
from .tour import GuidedTour
from .traffic import LOAD_SHARE, Traffic, measure_capacity

DRAIN_SECONDS = 2.0  # for requests of other clients
SLO_FACTOR = 25.0  # × the mean time of a request on the fastest replica
EXIT_FAILED = 1
# Reads until the demo, which holds the other end, is gone.
_CLEANUP_SCRIPT = 'read -r _; rm -rf -- "$1"'


async def run(options: DemoOptions, console: Console) -> int:
    began = time.monotonic()
    check_installed()
    logging.getLogger("steelyard").addHandler(logging.NullHandler())  # what happens is shown, not logged
    interrupt = Interrupt(console)
    try:
        with claim_default_ports() as usual, temporary_folder() as folder:
            at = choose_ports(options.port, usual=usual)
            configuration({}, options, at, folder)  # checks before anything is started
            console.print(Text("starting three replicas of unequal speed …", style="dim"))
            async with running_replicas() as fleet:
                return await _serve(fleet, options, at, folder, interrupt, console, began)
    except asyncio.CancelledError:
        if not interrupt.given.is_set():
            raise
        console.print("stopped before it began")
        return 0
    except (OSError, EOFError) as problem:
        raise StartError(f"the demo cannot go on: {problem}") from None


async def _serve(
    fleet: ReplicaProcesses,
    options: DemoOptions,
    at: Ports,
    folder: Path,
    interrupt: Interrupt,
    console: Console,
    began: float,
) -> int:
    console.print(Text("measuring what they can do together …", style="dim"))
    most = await measure_capacity(fleet.values())
    urls = {replica.name: replica.url for replica in fleet.values()}
    gateway = DemoGateway(configuration(urls, options, at, folder, slo_latency(most)))
    try:
        supervisor = await gateway.start()
    except ListenError:  # they were free when we looked
        gateway = DemoGateway(configuration(urls, options, Ports(options.port or 0, 0), folder, slo_latency(most)))
        supervisor = await gateway.start()
    try:
        interrupt.started()
        print_introduction(console, supervisor, fleet, LOAD_SHARE * most)
        traffic = Traffic(HOST, supervisor.addresses[0].port, LOAD_SHARE * most, Random(7))
        show = DemoSession(console, GuidedTour(fleet, supervisor, traffic, gateway.reconfigure, folder))
        seconds = await show.run(options, interrupt, began)
        policy = supervisor.config.models[MODEL_NAME].policy
    finally:
        await supervisor.stop(DRAIN_SECONDS)
    console.print(summary(show.guide.results, show.guide.comparison(), traffic.stats, seconds, policy))
    console.print("\nwhat to try next:")
    for typed, what in NEXT_STEPS.items():
        console.print(f"  {typed:<28} {what}", soft_wrap=True, markup=False)
    return EXIT_FAILED if traffic.stats.failures else 0


class DemoGateway:
    """As `steelyard serve` runs it, but its workers end with us."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def start(self) -> Supervisor:
        supervisor = Supervisor(self._config, reread=lambda: self._config, command=tied_command("steelyard.gateway"))
        await supervisor.start()
        return supervisor

    def reconfigure(self, config: Config) -> None:
        self._config = config


def slo_latency(capacity: float) -> float:
    """Seconds for a request, in whole tenths, that this machine can hold."""
    together = sum(SLOWDOWNS["fast"] / slowdown for slowdown in SLOWDOWNS.values())  # if the fastest does 1
    return max(0.1, round(SLO_FACTOR * together / capacity, 1))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Removed with the demo, even if that was killed."""
    folder = tempfile.mkdtemp(prefix="steelyard-demo-")
    sweeper = subprocess.Popen(
        ["/bin/sh", "-c", _CLEANUP_SCRIPT, "sh", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C in the terminal is for the demo alone
    )
    try:
        yield Path(folder)
    finally:
        assert sweeper.stdin is not None
        sweeper.stdin.close()
        sweeper.wait()
        shutil.rmtree(folder, ignore_errors=True)
