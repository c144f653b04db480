"""What others feel of one client's flood: their p99 with it and without it, in turns, as a ratio.

    python -m benchmarks.floods [--floods pipeline,chunks,drip] [--seconds 8] [--rounds 3] [--quick] [--update-docs]

A real gateway with one worker, on a core of its own where there are two, before a stub replica that answers at once.
Others send small requests at a fixed rate; while uploads drip, requests of 200 kB, which have to be held for a moment.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median
from time import monotonic, sleep

from rich.console import Console

from steelyard.simulate.engine.job import Job

from .load import open_loop
from .load.flood_clients import KINDS
from .load.open_loop import p99
from .testbed.docs_pages import markdown_table, write_section
from .testbed.processes import ManagedProcess, ProcessManager, cores, free_ports, pinned
from .testbed.rounds import verdict
from .testbed.testbed import describe_with_load, wait_until_answering

PAGE, SECTION = "performance.md", "benchmarks/floods.py"
REQUESTS_PER_SECOND = 100.0  # requests of others a second
FLOOD_LEAD_SECONDS = 2.0  # in which a flood unfolds before others are measured
GOAL_P99_RATIO = 3.0  # times
LARGE_REQUEST_BYTES = 200_000.0  # bytes
DESCRIPTIONS = {
    "pipeline": "100,000 pipelined `GET /v1/models`, two connections",
    "chunks": "bodies of one-byte chunks, two connections",
    "drip": "32 dripping uploads that hold all of `limits.total_buffer_bytes`",
}


@dataclass
class Figures:
    quiet: list[list[float]] = field(default_factory=list)  # milliseconds, by round
    flooded: list[list[float]] = field(default_factory=list)
    failed: list[int] = field(default_factory=lambda: [0, 0])
    killed: int = 0

    @property
    def ratio(self) -> float:
        """Each round within itself: noise differs between rounds."""
        pairs = zip(self.quiet, self.flooded, strict=True)
        return median(p99(flooded) / p99(quiet) for quiet, flooded in pairs if quiet and flooded)


@contextmanager
def gateway() -> Iterator[tuple[ManagedProcess, int]]:
    with ProcessManager() as processes:
        core, load = cores()
        listen, replica = free_ports(2)
        processes.start("stub", [sys.executable, "-m", "benchmarks.mocks.stubs", str(replica)], load, [replica])
        config = processes.folder / "floods.json"
        model = {"dialect": "openai", "replicas": [{"url": f"http://127.0.0.1:{replica}"}]}
        limits = {"total_buffer_bytes": "32MiB", "replay_bytes": "1MiB"}
        whole = {"listen": f"127.0.0.1:{listen}", "workers": 1, "limits": limits, "models": {"bench": model}}
        config.write_text(json.dumps({**whole, "admin": {"listen": ""}, "history": {"enabled": False}}), "utf-8")
        command = [sys.executable, "-m", "steelyard", "serve", str(config)]
        running = processes.start("steelyard", command, core, [listen])
        wait_until_answering(running, listen)
        yield running, listen


def send(port: int, seconds: float, size: float) -> tuple[list[float], int]:
    """Milliseconds of each answer, and how many requests failed."""
    jobs = [Job(n / REQUESTS_PER_SECOND, 0.0, (size,)) for n in range(int(seconds * REQUESTS_PER_SECOND))]
    found = open_loop.run(port, monotonic() + 0.5, jobs, lambda: None)
    answered = [1000.0 * answer.seconds for answer in found.answers if answer.seconds is not None]
    return answered, len(jobs) - len(answered)


def measure(kind: str, options: argparse.Namespace) -> Figures:
    figures = Figures()
    size = LARGE_REQUEST_BYTES if kind == "drip" else 64.0
    with gateway() as (running, port), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as sender:
        with pinned(cores()[1]):
            sender.submit(send, port, 1.0, size).result()
        workers = set(running.pids())
        for _ in range(options.rounds):
            for flooded in (False, True):
                with flood(kind if flooded else "", port, options.seconds + FLOOD_LEAD_SECONDS):
                    sleep(FLOOD_LEAD_SECONDS)
                    milliseconds, failed = sender.submit(send, port, options.seconds, size).result()
                (figures.flooded if flooded else figures.quiet).append(milliseconds)
                figures.failed[flooded] += failed
        figures.killed = len(workers - set(running.pids()))
    return figures


@contextmanager
def flood(kind: str, port: int, seconds: float) -> Iterator[None]:
    if not kind:
        yield
        return
    with pinned(cores()[1]):
        flooders = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load.flood_clients", kind, str(port), str(seconds + 1.0)],
            start_new_session=True,
        )
    try:
        yield
    finally:
        flooders.kill()
        flooders.wait()


def row(kind: str, seen: Figures) -> list[str]:
    cells = [
        f"{median(p99(one) for one in rounds):.1f}" for rounds in (seen.quiet, seen.flooded) if any(map(len, rounds))
    ]
    return [DESCRIPTIONS[kind], *cells, f"{seen.ratio:.2f}", str(seen.failed[1]), str(seen.killed)]


def tables(seen: dict[str, Figures]) -> str:
    header = ["flood", "p99 without, ms", "p99 with, ms", "ratio", "others failed", "workers killed"]
    lines = [
        f"- {verdict(f'{kind}: p99 with ÷ without', figures.ratio, GOAL_P99_RATIO)}" for kind, figures in seen.items()
    ]
    return "\n".join([markdown_table(header, [row(*one) for one in seen.items()]), "", *lines])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--floods", default=",".join(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of requests, each time")
    parser.add_argument("--quick", action="store_true", help="one round of three seconds: does it work at all?")
    parser.add_argument("--update-docs", action="store_true", help=f"write the table into docs/{PAGE}")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 3.0
    return options


def main() -> None:
    options = arguments()
    machine = describe_with_load(f"python -m benchmarks.floods --rounds {options.rounds} --seconds {options.seconds:g}")
    seen = {kind: measure(kind, options) for kind in options.floods.split(",")}
    text = f"Measured {machine}.\n\n{tables(seen)}"
    Console(width=140).print(text, markup=False, highlight=False)
    if options.update_docs:
        write_section(PAGE, SECTION, text)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
