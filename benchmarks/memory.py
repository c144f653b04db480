"""Three models on a device that really runs out: with the ledger, with static limits, and with nothing.

    python -m benchmarks.memory [--setups ledger,static-1] [--rounds 3] [--seconds 12] [--quick] [--update-docs]

The device is a file system in memory of a fixed size, shared by three server processes; the kernel kills the writer
when it is full, and a supervisor restarts it. Clients ask for inferences whose memory differs by a factor of fifty.
"""

from __future__ import annotations

import argparse
import http.client
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from rich.console import Console
from rich.progress import Progress

from .lifecycle import select
from .load import memory_requests
from .load.memory_requests import MIB, Job, RequestMix
from .mocks.memory_device import HostedModel, MemoryDevice
from .overhead import show
from .peers.steelyard import Steelyard
from .scores.memory import Run, Setup, report, summary
from .testbed.docs_pages import DOCS, markdown_table, write_section
from .testbed.processes import ManagedProcess, ProcessManager, StartError, cores, free_ports
from .testbed.rounds import Report, Rounds
from .testbed.testbed import describe_with_load

PAGE = "memory.md"
SECTION = "memory"
DEVICE_BYTES = 256 * MIB
HEADROOM_SHARE = 0.1
MODELS = (
    HostedModel("a", 16 * MIB, 32 << 10),
    HostedModel("b", 16 * MIB, 64 << 10),
    HostedModel("c", 16 * MIB, 128 << 10),
)
REQUEST_MIX = RequestMix(per_mib=0.012)
CLIENTS = 48
LIMITS_PER_MODEL = (1, 2, 3, 4, 6, 8)
LIMITS_ON_DEVICE = (3, 4, 5, 6)
WARM_UP_REQUESTS = 40  # not timed, but deaths count
SETUPS: dict[str, Setup] = {
    "nothing": Setup("nothing"),
    **{f"static-{n}": Setup(f"at most {n} for each model", limit=n) for n in LIMITS_PER_MODEL},
    **{f"device-{n}": Setup(f"at most {n} on the device", limit=n, on_device=True) for n in LIMITS_ON_DEVICE},
    "ledger": Setup("ledger, sizes learned", ledger=True, declared=False),
    "ledger-declared": Setup("ledger, sizes declared", ledger=True),
    "ledger-2": Setup("ledger, sizes learned, 2 workers", ledger=True, declared=False, workers=2),
}


def configuration(setup: Setup, device: MemoryDevice, listen: int) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for model in device.models.values():
        replica = {"url": f"http://127.0.0.1:{device.port[model.name]}"}
        limit = setup.limit if setup.limit is not None and not setup.on_device else "unlimited"
        models[model.name] = {"policy": "least_connections", "concurrency": limit, "replicas": [replica]}
        models[model.name] |= {"dialect": "oip", "health": {"interval": "500ms", "loading_interval": "100ms"}}
        models[model.name] |= {"load_metrics": {"orca": True, "enabled": True, "path": "/metrics", "interval": "1s"}}
        if setup.ledger or setup.on_device:
            replica["device"] = "box"
        if setup.ledger and setup.declared:
            models[model.name]["memory"] = {"weights": model.weights, "per_unit": model.per_unit}
    whole = {"listen": f"127.0.0.1:{listen}", "admin": {"listen": ""}, "workers": setup.workers, "models": models}
    if setup.ledger:
        whole["devices"] = {"box": {"memory": device.size, "headroom": HEADROOM_SHARE}}
    elif setup.on_device:
        whole["devices"] = {"box": {"concurrency": setup.limit}}
    return whole


def measure_setup(processes: ProcessManager, setup: Setup, seconds: float, seed: int) -> Run:
    """A device, servers and a gateway of their own."""
    program = Steelyard("steelyard", pure=True).find()
    if program is None:
        raise StartError("steelyard is not installed beside this Python")
    (listen,) = free_ports(1)
    with MemoryDevice(DEVICE_BYTES, MODELS) as device:
        file = processes.folder / "memory.yaml"
        file.write_text(json.dumps(configuration(setup, device, listen)), encoding="utf-8")
        gateway = processes.start("steelyard", [program, "serve", str(file)], cores()[0], [listen])
        try:
            wait_until_served(gateway, listen)
            memory_requests.run(listen, islice(REQUEST_MIX.jobs(MODELS, 1000 + seed), WARM_UP_REQUESTS), CLIENTS)
            burst = memory_requests.run(listen, REQUEST_MIX.jobs(MODELS, seed), CLIENTS, seconds)
            if gateway.process.poll() is not None:
                raise StartError(f"the gateway ended while it was measured:\n{gateway.log_tail()}")
            return summary(burst, len(device.deaths()))
        finally:
            processes.stop(gateway)


def wait_until_served(gateway: ManagedProcess, listen: int, seconds: float = 30.0) -> None:
    end = monotonic() + seconds
    for model in MODELS:
        while (status := ask(listen, Job(model.name, 1, 0.0, model.per_unit))) != "200":
            if gateway.process.poll() is not None or monotonic() > end:
                raise StartError(f"the gateway answers {status}, not 200:\n{gateway.log_tail()}")
            sleep(0.1)


def ask(listen: int, job: Job) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", listen, timeout=5.0)
    try:
        connection.request("POST", f"/v2/models/{job.model}/infer", job.body(), {"content-type": "application/json"})
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as problem:
        return repr(problem)
    finally:
        connection.close()


def run(options: argparse.Namespace, setups: Sequence[Setup]) -> Rounds[Run]:
    """A B C A B C …, so that noise hits every setup alike."""
    rounds: Rounds[Run] = Rounds({})
    with ProcessManager() as processes, Progress() as progress:
        bar = progress.add_task("", total=options.rounds * len(setups))
        for turn in range(1, options.rounds + 1):
            for setup in setups:
                progress.update(bar, description=f"round {turn}: {setup.name}")
                if setup.name not in rounds.broken:
                    try:
                        rounds.add(setup.name, measure_setup(processes, setup, options.seconds, turn))
                    except (StartError, OSError) as problem:
                        rounds.give_up(setup.name, str(problem))
                progress.advance(bar)
    return rounds


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--setups", default=",".join(SETUPS), help=f"of {', '.join(SETUPS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="of load in each run")
    parser.add_argument("--quick", action="store_true", help="one round of three seconds: does it work at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every run's figures")
    parser.add_argument("--update-docs", action="store_true", help=f"write the table into docs/{PAGE}")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write it there")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 3.0
    return options


def command(options: argparse.Namespace) -> str:
    """Reproduces these figures."""
    words = ["python -m benchmarks.memory"]
    if options.setups != ",".join(SETUPS):
        words.append(f"--setups {options.setups}")
    return " ".join([*words, f"--rounds {options.rounds} --seconds {options.seconds:g}"])


def check_page() -> None:
    """Before minutes of measuring: is there a place for what it will say?"""
    page = DOCS / PAGE
    if not page.exists() or f"<!-- begin: {SECTION} -->" not in page.read_text(encoding="utf-8"):
        raise SystemExit(f"docs/{PAGE} has no section `<!-- begin: {SECTION} -->` … `<!-- end: {SECTION} -->`")


def markdown(one: Report, machine: str) -> str:
    parts = [f"Measured {machine}.", "", f"**{one.title}**", "", markdown_table(one.header, one.rows), ""]
    return "\n".join([*parts, *(f"- {line}" for line in one.verdicts)])


def main() -> None:
    options = arguments()
    if options.update_docs:
        check_page()
    setups = select(SETUPS, options.setups)
    machine = describe_with_load(command(options))
    title = (
        f"Three models of {MODELS[0].weights // MIB} MiB on a device of {DEVICE_BYTES // MIB} MiB, "
        f"{HEADROOM_SHARE:.0%} headroom; {CLIENTS} clients; "
        f"requests of {REQUEST_MIX.small[0] // MIB} to {REQUEST_MIX.large[1] // MIB} MiB"
    )
    one = report(title, setups, run(options, setups))
    show(Console(width=140), one, machine)
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "runs": one.raw}, indent=1) + "\n", encoding="utf-8")
    if options.markdown is not None:
        options.markdown.write_text(markdown(one, machine) + "\n", encoding="utf-8")
    if options.update_docs:
        write_section(PAGE, SECTION, markdown(one, machine))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
