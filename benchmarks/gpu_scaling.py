"""Autoscaling on a real GPU: from zero, up to as many replicas as its memory holds and not one more, and back to zero.

python -m benchmarks.gpu_scaling             needs a GPU with 100 GiB or more, torch, nvidia-ml-py
python -m benchmarks.gpu_scaling --pretend   the same course anywhere, with a declared device and replicas that sleep
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from .testbed.docs_pages import markdown_table, write_section
from .testbed.machine import describe

WEIGHTS_GIB = 30  # of weights
REQUEST_GIB = 1
CLIENTS = 24
MAX_REPLICAS = 8
PAGE, SECTION, MEASURED_PREFIX = "autoscaling.md", "benchmarks/gpu_scaling.py", "Measured "
GATEWAY, ADMIN = "http://127.0.0.1:18480", "http://127.0.0.1:18481"


def configuration(pretend: bool) -> dict[str, Any]:
    command = (
        f"{sys.executable} -m benchmarks.gpu.large_replica {{port}} {WEIGHTS_GIB}{' --pretend' if pretend else ''}"
    )
    return {
        "listen": GATEWAY.removeprefix("http://"),
        "admin": {"listen": ADMIN.removeprefix("http://")},
        "devices": {"gpu0": {"memory": "140GiB"} if pretend else {"gpu": "0"}},
        "models": {
            "m": {
                "dialect": "http",
                "concurrency": 1,
                "queue_timeout": "3m",
                "slo": {"latency": "1s", "percentile": 95},
                "memory": {"weights": f"{WEIGHTS_GIB}GiB", "per_request": f"{REQUEST_GIB}GiB"},
                "runtime": {"command": command, "devices": ["gpu0"], "working_directory": str(Path.cwd())},
                "autoscale": {
                    "min": 0,
                    "max": MAX_REPLICAS,
                    "scale_to_zero_after": "8s",
                    "scaler_options": {"stabilization_window": 10.0},
                },
            }
        },
    }


@contextmanager
def gateway(pretend: bool) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scaled.yaml"
        path.write_text(json.dumps(configuration(pretend)), encoding="utf-8")
        process = subprocess.Popen([sys.executable, "-m", "steelyard", "serve", str(path)])
        try:
            until(lambda: bool(get("/healthz")), 30.0)
            yield
        finally:
            process.terminate()
            process.wait(60.0)


def get(path: str) -> Any:
    try:
        with urlopen(ADMIN + path, timeout=10.0) as answer:
            return json.load(answer)
    except OSError:
        return None


def scaling() -> dict[str, Any]:
    found = get("/v1/scaling")
    return dict(found["scaling"][0]) if found else {}


def until(done: Any, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not done():
        if time.monotonic() >= limit:
            raise SystemExit(f"not within {seconds:g} s: {scaling()}")
        time.sleep(0.1)


def ask() -> tuple[int, str, float]:
    began = time.monotonic()
    try:
        with urlopen(f"{GATEWAY}/predict", data=b"x", timeout=300.0) as answer:
            return answer.status, answer.read().decode(), time.monotonic() - began
    except HTTPError as problem:
        return problem.code, problem.read().decode(errors="replace"), time.monotonic() - began


class Clients:
    """Closed-loop clients."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str, float]] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def _ask(self) -> None:
        while not self._over.is_set():
            self.answers.append(ask())

    def run(self, seconds: float) -> tuple[int, int]:
        """The most replicas that were ready, and the most bytes of the card in use."""
        most = used = 0
        for thread in self._threads:
            thread.start()
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            most = max(most, scaling().get("ready", 0))
            device = get("/v1/devices/gpu0") or {}
            used = max(used, device.get("measured") or device.get("committed") or 0)
            time.sleep(0.5)
        self._over.set()
        for thread in self._threads:
            thread.join()
        return most, used


def measure(seconds: float) -> list[list[str]]:
    first = ask()
    cold = scaling()["cold_start"]
    clients = Clients()
    most, used = clients.run(seconds)
    seen = scaling()
    budget = get("/v1/devices/gpu0")["budget"]
    alarms = [alarm["message"] for alarm in get("/v1/fleet")["alarms"] if alarm["code"] == "insufficient_memory"]
    statuses = Counter(status for status, _, _ in clients.answers)
    until(lambda: scaling().get("ready") == 0 and not scaling()["instances"], 120.0)
    second = ask()
    return [
        ["first answer from zero", f"{first[2]:.1f} s ({first[0]})"],
        ["cold start as measured then", f"{cold:.1f} s"],
        ["replicas at the most, `max` being " + str(MAX_REPLICAS), str(most)],
        ["most of the device in use, of its budget", f"{used / 2**30:.1f} of {budget / 2**30:.1f} GiB"],
        ["answers under load", ", ".join(f"{n} × {status}" for status, n in sorted(statuses.items()))],
        ["out of memory", str(sum("out of memory" in body for _, body, _ in clients.answers))],
        [
            "CUDA_VISIBLE_DEVICES of answering replicas",
            ", ".join(sorted({b for s, b, _ in clients.answers if s == 200})),
        ],
        ["why there were no more", alarms[0] if alarms else (seen["start_failure"] or {}).get("message", "–")],
        ["first answer from zero, second time", f"{second[2]:.1f} s ({second[0]})"],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pretend", action="store_true", help="without a GPU: does the course work at all?")
    parser.add_argument("--seconds", type=float, default=90.0, help="of load")
    parser.add_argument("--again", type=Path, metavar="FILE", help="what it printed on another machine; runs nothing")
    parser.add_argument("--update-docs", action="store_true", help=f"write the table into docs/{PAGE}")
    options = parser.parse_args()
    if options.again is not None:
        printed = options.again.read_text(encoding="utf-8")
        text = printed[printed.index(MEASURED_PREFIX) :].partition("\n\n\n")[0]
    else:
        with gateway(options.pretend):
            rows = measure(options.seconds)
        table = markdown_table(["on one GPU", ""], rows)
        text = f"{MEASURED_PREFIX}{describe('python -m benchmarks.gpu_scaling')}.\n\n{table}"
    print(text)
    if options.update_docs:
        write_section(PAGE, SECTION, text)


if __name__ == "__main__":
    main()
