"""`python -m steelyard.gateway`: one worker, started by the supervisor. Not for people."""

from __future__ import annotations

import argparse
import socket

import uvloop

from ..link.board import Board
from .worker import Worker


async def _run(arguments: argparse.Namespace) -> None:
    channel = socket.socket(fileno=arguments.channel)
    listeners = [socket.socket(fileno=int(fd)) for fd in arguments.listen.split(",")]
    await Worker(channel, Board.attach(arguments.board), listeners, arguments.index).run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="steelyard.gateway", description=__doc__)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--board", type=int, required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    uvloop.run(_run(parser.parse_args()))


main()
