"""`python -m steelyard.gateway`: one worker, started by the supervisor. Not for people."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import uvloop

from ..link.load_board import LoadBoard
from ..link.shared_ledger import SharedLedger
from .worker.process import run_worker


async def _run(arguments: argparse.Namespace) -> None:
    channel = socket.socket(fileno=arguments.channel)
    listeners = [socket.socket(fileno=int(fd)) for fd in arguments.listen.split(",")]
    board = LoadBoard(arguments.load_board)
    ledger = SharedLedger(arguments.ledger, arguments.ledger_row)
    control_socket = Path(arguments.control_socket) if arguments.control_socket else None
    await run_worker(channel, board, listeners, arguments.index, ledger, control_socket)


def main() -> None:
    # A policy named package.module:Class may be where the user works. Last, so that it hides nothing installed; the
    # supervisor starts us with -P, or the folder would be first.
    sys.path.append("")
    parser = argparse.ArgumentParser(prog="steelyard.gateway", description=__doc__)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--load-board", type=int, required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--ledger", type=int, required=True)
    parser.add_argument("--ledger-row", type=int, required=True)
    parser.add_argument("--control-socket", default="")
    uvloop.run(_run(parser.parse_args()))


main()
