"""Three torch models share one GPU, and requests differ 1:100 in memory: how many run out?

    python -m benchmarks.gpu_memory [--runs without,with] [--requests 320] [--out DIR] [--update-docs]
    python -m benchmarks.gpu_memory --again results.json [--update-docs]    the tables of a run elsewhere
    python -m benchmarks.gpu_memory --cpu-dry-run            without a GPU: does it all work?

The same bursts of requests go through the gateway in each run: without the ledger, by `least_connections`; with the GPU
as a device of the ledger; and with one request at a time on the GPU. The servers note what each request needed at most,
by torch's own allocator; the memory in use is what the driver says, every 10 ms.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from .gpu.device import GpuDevice, MemoryMonitor, NvidiaDevice
from .gpu.fake_device import CAPACITY_BYTES, FakeDevice
from .gpu.load import Answer, run
from .gpu.plan import Planned, plan
from .gpu.request_log import RequestRecord, read_records
from .gpu.scores import Figures, Learned, figures, learned, reported_errors, tables, verdicts
from .gpu.testbed import HEADROOM_SHARE, RUNS, Setting, start_testbed
from .testbed.docs_pages import write_section

PAGE, SECTION = "memory.md", "gpu_memory"
DEFAULTS: dict[str, Any] = {
    "runs": "without,with,one",
    "requests": 320,
    "burst": 24,
    "every": 5.0,
    "replicas": 2,
    "threads": 1,
    "workers": 2,
    "learn": 200,
    "seed": 1,
}


def measure_run(name: str, setting: Setting, todo: Sequence[Planned], folder: Path) -> dict[str, Any]:
    """One run, with servers and a gateway of its own. All that was seen, as JSON can hold it."""
    folder.mkdir()
    card: GpuDevice = FakeDevice(folder) if setting.fake_device else NvidiaDevice()
    before = card.used()
    with start_testbed(name, setting, folder) as started:
        at_rest = card.used()
        with MemoryMonitor(card) as watch:
            answers = run(started.port, todo)
        fleet, said = started.fleet(), started.gateway.log_tail()
    return {
        "total": card.total,
        "line": int(card.total * (1.0 - HEADROOM_SHARE)),
        "used_before": before,
        "used_with_models": at_rest,
        "peak": watch.peak,
        "used": watch.seen,
        "looks": watch.looks,
        "answers": [[*answer.planned, *answer[1:]] for answer in answers],
        "notes": [note._asdict() for note in read_records(folder)],
        "fleet": fleet,
        "gateway": said,
    }


def scored(name: str, raw: Mapping[str, Any]) -> Figures:
    answers = [Answer(Planned(due, model, tuple(shape)), *rest) for due, model, shape, *rest in raw["answers"]]
    notes = [RequestRecord(**note) for note in raw["notes"]]
    return figures(RUNS[name], answers, notes, raw["peak"], raw["total"], raw["line"])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    fake_device = {"memory": CAPACITY_BYTES} if options.cpu_dry_run else None
    setting = Setting(options.replicas, options.threads, options.workers, fake_device)
    todo = plan(options.requests, options.burst, options.every, options.seed)
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="steelyard-gpu-") as place:
        card: GpuDevice = FakeDevice(Path(place)) if options.cpu_dry_run else NvidiaDevice()
        machine = described(card, options)
        for name in options.runs.split(","):
            print(f"{RUNS[name]}: {len(todo)} requests")
            raw[name] = measure_run(name, setting, todo, Path(place) / name)
    notes = [RequestRecord(**note) for note in raw["with"]["notes"]] if "with" in raw else []
    return {"machine": machine, "runs": raw, "learned": [one.plain() for one in learned(notes, options.learn)]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_memory", description=__doc__.splitlines()[0])
    parser.set_defaults(**DEFAULTS)
    parser.add_argument("--runs", help=f"of {', '.join(RUNS)}; all, if none are named")
    parser.add_argument("--requests", type=int)
    parser.add_argument("--burst", type=int, help="requests that come at once")
    parser.add_argument("--every", type=float, help="seconds between two bursts")
    parser.add_argument("--replicas", type=int, help="servers of each model")
    parser.add_argument("--threads", type=int, help="requests that a server runs at once")
    parser.add_argument("--workers", type=int, help="of the gateway")
    parser.add_argument("--learn", type=int, help="requests after which what was learned is compared")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cpu-dry-run", action="store_true", help="a pretended GPU, in the memory of this machine")
    parser.add_argument("--again", type=Path, metavar="FILE", help="the tables of a results.json, measured elsewhere")
    parser.add_argument("--out", type=Path, metavar="DIR", help="for results.json and table.md")
    parser.add_argument("--update-docs", action="store_true", help=f"write the tables into docs/{PAGE}")
    options = parser.parse_args()
    if unknown := set(options.runs.split(",")) - set(RUNS):
        parser.error(f"there is no run {', '.join(sorted(unknown))}")
    return options


def described(card: GpuDevice, options: argparse.Namespace) -> str:
    words = [
        f"--{name} {getattr(options, name)}" for name, value in DEFAULTS.items() if getattr(options, name) != value
    ]
    words += ["--cpu-dry-run"] if options.cpu_dry_run else []
    command = " ".join(["python -m benchmarks.gpu_memory", *words])
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {card.name} ({card.total / (1 << 30):.1f} GiB), driver {card.driver}, "
        f"torch {card.torch}, `{command}`"
    )


def main() -> None:
    options = arguments()
    results = json.loads(options.again.read_text(encoding="utf-8")) if options.again else measure(options)
    text = report(results)
    Console(width=160).print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "results.json").write_text(json.dumps(results) + "\n", encoding="utf-8")
        (options.out / "table.md").write_text(text + "\n", encoding="utf-8")
    if options.update_docs:
        write_section(PAGE, SECTION, text)


def report(results: Mapping[str, Any]) -> str:
    runs = {name: scored(name, raw) for name, raw in results["runs"].items()}
    sizes = [Learned(**one) for one in results["learned"]]
    said = [f"- {line}" for line in verdicts(runs.get("without"), runs.get("with"), sizes)]
    if "with" in runs and (own := gateway_errors(results["runs"]["with"])):
        said.append(f"- what the gateway itself showed at the end for the smallest and the largest request: {own}")
    return "\n\n".join([f"Measured {results['machine']}.", tables(list(runs.values()), sizes), "\n".join(said)])


def gateway_errors(raw: Mapping[str, Any]) -> str:
    fleet = raw["fleet"]
    sizes = fleet.get("model_memory", []) if isinstance(fleet, dict) else []  # text: it did not answer
    return ", ".join(reported_errors(sizes, [RequestRecord(**note) for note in raw["notes"]]))


def leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)  # by way of everything that was started


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
