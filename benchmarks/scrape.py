"""What it costs to read the metrics of 500 replicas: how long a scrape takes, and whether requests feel it.

    python -m benchmarks.scrape [--replicas 500] [--seconds 30] [--rounds 3] [--quick] [--update-docs]

A real gateway with five models and four workers, SLOs and history on, before stub replicas that answer at once.
Requests come at a fixed rate, without scrapes and with one every second, in turns; they have a process of their own.
Nothing is pinned to a core. Each scrape finds the page of the last one too old, so each is made anew.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from rich.console import Console

from steelyard.simulate.engine.job import Job

from .load import open_loop
from .load.open_loop import p99
from .testbed.docs_pages import markdown_table, write_section
from .testbed.processes import ManagedProcess, ProcessManager, StartError, cores, free_ports
from .testbed.rounds import verdict
from .testbed.testbed import describe_with_load

PAGE, SECTION = "metrics.md", "benchmarks/scrape.py"
MODELS, WORKERS = 5, 4
STUB_PROCESSES = 2  # processes that the replicas share
REQUESTS_PER_SECOND = 300.0  # requests a second
SCRAPE_INTERVAL_SECONDS = 1.1
GOAL_SCRAPE_MS = 50.0  # milliseconds
READY_TIMEOUT_SECONDS = 90.0


def start(processes: ProcessManager, replicas: int) -> tuple[ManagedProcess, int, int]:
    """The gateway, and the ports of it and of its admin API, when all replicas are ready."""
    ports = free_ports(replicas + 2)
    listen, admin = ports[:2]
    share = -(-replicas // STUB_PROCESSES)
    for n in range(STUB_PROCESSES):
        some = ports[2:][n * share : (n + 1) * share]
        command = [sys.executable, "-m", "benchmarks.mocks.stubs", *map(str, some)]
        _unpin(processes.start(f"stubs{n}", command, cores()[1], some[-1:]))
    config = processes.folder / "scrape.json"
    config.write_text(json.dumps(_config(processes.folder, listen, admin, ports[2:])), encoding="utf-8")
    program = str(Path(sys.executable).with_name("steelyard"))
    running = processes.start("steelyard", [program, "serve", str(config)], cores()[0], [listen, admin])
    _wait_until_ready(running, admin, replicas)
    _unpin(running)
    return running, listen, admin


def _unpin(running: ManagedProcess) -> None:
    """Let it run on any core: a replica that is pinned to the core of the supervisor would have to wait for it."""
    for pid in running.pids():
        with suppress(OSError):
            os.sched_setaffinity(pid, range(os.cpu_count() or 1))


def _config(folder: Path, listen: int, admin: int, ports: list[int]) -> dict[str, object]:
    slo = {"latency": "200ms", "availability": 99.9}
    models = {}
    for n in range(MODELS):
        replicas = [{"url": f"http://127.0.0.1:{port}"} for port in ports[n::MODELS]]
        models["bench" if n == 0 else f"bench-{n}"] = {"slo": slo, "replicas": replicas}
    return {
        "listen": f"127.0.0.1:{listen}",
        "workers": WORKERS,
        "admin": {"listen": f"127.0.0.1:{admin}"},
        "history": {"path": str(folder / "history.sqlite")},
        "models": models,
    }


def _wait_until_ready(running: ManagedProcess, admin: int, replicas: int) -> None:
    end = monotonic() + READY_TIMEOUT_SECONDS
    while True:
        lines = scrape(admin)[1].decode().splitlines()
        ready = sum(float(line.split()[-1]) for line in lines if line.startswith("steelyard_model_replicas_ready{"))
        if ready == replicas and sum(line.startswith("steelyard_worker_serving{") for line in lines) == WORKERS:
            return
        if monotonic() > end:
            raise StartError(f"{ready:.0f} of {replicas} replicas are ready:\n{running.log_tail()}")
        sleep(SCRAPE_INTERVAL_SECONDS)


def scrape(admin: int) -> tuple[float, bytes]:
    """Milliseconds from the request to the last byte, over a connection of its own, and the page."""
    begin = monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=30.0)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    assert answer.status == 200, text
    return 1000.0 * (monotonic() - begin), text


def send(port: int, seconds: float) -> tuple[list[float], int]:
    """Milliseconds of each answer, and how many requests failed."""
    jobs = [Job(n / REQUESTS_PER_SECOND, 0.0, (64.0,)) for n in range(int(seconds * REQUESTS_PER_SECOND))]
    found = open_loop.run(port, monotonic() + 0.5, jobs, lambda: None)
    answered = [1000.0 * answer.seconds for answer in found.answers if answer.seconds is not None]
    return answered, len(jobs) - len(answered)


class Figures:
    def __init__(self) -> None:
        self.requests: dict[bool, list[list[float]]] = {False: [], True: []}  # by round; True: while scraped
        self.failed = 0
        self.idle: list[float] = []  # scrapes
        self.loaded: list[float] = []
        self.page = b""  # the last

    def looked(self, to: list[float], took: tuple[float, bytes]) -> None:
        to.append(took[0])
        self.page = took[1]


def measure(options: argparse.Namespace) -> Figures:
    figures = Figures()
    with ProcessManager() as processes, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as sender:
        _, listen, admin = start(processes, options.replicas)
        sender.submit(send, listen, 1.0).result()  # the connections, and the sender itself
        for _ in range(options.scrapes):
            sleep(SCRAPE_INTERVAL_SECONDS)
            figures.looked(figures.idle, scrape(admin))
        for _ in range(options.rounds):
            for scraped in (False, True):
                done = sender.submit(send, listen, options.seconds)
                if scraped:
                    _scrape_while(done, figures, admin)
                milliseconds, failed = done.result()
                figures.requests[scraped].append(milliseconds)
                figures.failed += failed
    return figures


def _scrape_while(done: Future[tuple[list[float], int]], figures: Figures, admin: int) -> None:
    while not done.done():
        begin = monotonic()
        figures.looked(figures.loaded, scrape(admin))
        sleep(max(0.0, begin + SCRAPE_INTERVAL_SECONDS - monotonic()))


def tables(options: argparse.Namespace, figures: Figures) -> str:
    of = f"{options.replicas} replicas, {MODELS} models, {WORKERS} workers"
    scrapes = [
        [what, str(len(took)), f"{median(took):.1f}", f"{max(took):.1f}", f"{len(figures.page) / 1024:.0f}"]
        for what, took in (
            (f"{of}, idle", figures.idle),
            (f"the same, {REQUESTS_PER_SECOND:g} requests/s", figures.loaded),
        )
    ]
    samples = sum(not line.startswith(b"#") for line in figures.page.splitlines())
    requests = []
    for scraped, what in ((False, "without scrapes"), (True, f"a scrape every {SCRAPE_INTERVAL_SECONDS:g} s")):
        rounds = figures.requests[scraped]
        of_rounds = sorted(map(p99, rounds))
        cells = [f"{median(map(median, rounds)):.2f}", f"{median(of_rounds):.2f}"]
        cells += [f"{of_rounds[0]:.2f} … {of_rounds[-1]:.2f}", f"{max(map(max, rounds)):.2f}"]
        requests.append([what, str(sum(map(len, rounds))), *cells])
    return "\n".join(
        [
            markdown_table(["scrape", "scrapes", "median ms", "worst ms", "page KiB"], scrapes),
            "",
            markdown_table(
                ["requests meanwhile", "answers", "p50 ms", "p99 ms", "p99 of the rounds", "worst ms"], requests
            ),
            "",
            f"- {samples} samples on a page; {figures.failed} requests failed.",
            f"- p99 with scrapes is above that without in {_worse(figures)} of {options.rounds} rounds.",
            f"- {verdict('scrape, median', median(figures.idle), GOAL_SCRAPE_MS, unit=' ms')}",
            f"- {verdict('scrape under load, median', median(figures.loaded), GOAL_SCRAPE_MS, unit=' ms')}",
        ]
    )


def _worse(figures: Figures) -> int:
    """Rounds, each compared within itself: noise differs between rounds."""
    pairs = zip(figures.requests[False], figures.requests[True], strict=True)
    return sum(p99(scraped) > p99(without) for without, scraped in pairs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--replicas", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of requests, each time")
    parser.add_argument("--scrapes", type=int, default=20, help="without requests")
    parser.add_argument("--quick", action="store_true", help="one round of five seconds: does it work at all?")
    parser.add_argument("--update-docs", action="store_true", help=f"write the tables into docs/{PAGE}")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.scrapes = 1, 5.0, 5
    return options


def main() -> None:
    options = arguments()
    command = f"python -m benchmarks.scrape --replicas {options.replicas} --rounds {options.rounds}"
    machine = describe_with_load(f"{command} --seconds {options.seconds:g} --scrapes {options.scrapes}")
    text = f"Measured {machine}.\n\n{tables(options, measure(options))}"
    Console(width=140).print(text, markup=False, highlight=False)
    if options.update_docs:
        write_section(PAGE, SECTION, text)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
