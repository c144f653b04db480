"""`steelyard demo`: three replicas, the gateway, traffic, a live table."""

from __future__ import annotations

import asyncio

import click
import uvloop

from ..demo.run import run
from ..demo.settings import Options
from . import screen

HELP = """See it work: three replicas of unequal speed, the gateway in front, mixed traffic, a live table.

\b
  steelyard demo                             until Ctrl-C
  steelyard demo --seconds 20                ends by itself
  steelyard demo --policy round_robin        compare the p99

The replicas are processes on this machine that serve a small text model; two of them do all their work twice and four
times, to be slower. Nothing is installed, nothing is left behind. Exit code 1: a request failed. More: docs/demo.md.
"""


@click.command(help=HELP, short_help="See it work: replicas, gateway, traffic, a live table.")
@click.option("--seconds", type=click.IntRange(min=1), metavar="N", help="End after so many; by default at Ctrl-C.")
@click.option("--policy", metavar="NAME", help="How to choose; by default least_work.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes that forward; by default 1.")
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="P",
    help="Where the gateway listens; by default 8080, or another if that is in use.",
)
def demo(seconds: int | None, policy: str | None, workers: int | None, port: int | None) -> int:
    options = Options(seconds, policy, workers, port)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(options, screen.stdout()))
