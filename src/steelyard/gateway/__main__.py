"""`python -m steelyard.gateway`: a worker or the balancer process, started by the supervisor. Not for people."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import uvloop

from ..link.shared_ledger import SharedLedger
from .worker.supervisor_channel import SupervisorChannel


async def _run(arguments: argparse.Namespace) -> None:
    supervisor = await SupervisorChannel.open(socket.socket(fileno=arguments.channel))
    listeners = [socket.socket(fileno=int(fd)) for fd in arguments.listen.split(",")]
    ledger = SharedLedger(arguments.ledger, arguments.ledger_row) if arguments.ledger_row else None
    if arguments.recover is not None:
        from .balancer_process.process import run_balancer

        recover = [int(pid) for pid in arguments.recover.split(",") if pid]
        await run_balancer(supervisor, listeners[0], ledger, recover)
        return
    from .worker.process import WorkerPlace, run_worker

    control_socket = Path(arguments.control_socket) if arguments.control_socket else None
    place = WorkerPlace(arguments.index, arguments.workers, listeners, ledger, arguments.balancer, control_socket)
    await run_worker(supervisor, place)


def main() -> None:
    # A policy named package.module:Class may be where the user works. Last, so that it hides nothing installed; the
    # supervisor starts us with -P, or the folder would be first.
    sys.path.append("")
    parser = argparse.ArgumentParser(prog="steelyard.gateway", description=__doc__)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--ledger", type=int, required=True)
    parser.add_argument("--ledger-row", type=int, default=0)
    parser.add_argument("--balancer", default="", help="the balancer process to ask")
    parser.add_argument("--recover", help="be the balancer process; the pids of workers that may have requests already")
    parser.add_argument("--control-socket", default="")
    uvloop.run(_run(parser.parse_args()))


main()
