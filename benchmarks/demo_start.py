"""How long a stranger waits for the demo: `make demo` in a checkout where nothing was installed.

    python -m benchmarks.demo_start [--rounds 1] [--update-docs]

What is in the working tree is copied to an empty folder. The install is what pip does, with whatever it has in its
cache; what counts is the time from its end to the first answer that a client got through the gateway.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic
from typing import NamedTuple

from .testbed.docs_pages import markdown_table, write_section
from .testbed.machine import describe

ROOT = Path(__file__).parents[1]
SECTION = "benchmarks/demo_start.py"
GOAL_SECONDS = 60.0


class Times(NamedTuple):
    """Seconds, and bytes on disk."""

    install: float
    first_answer: float
    size: int


def checkout(folder: Path) -> None:
    """All that a commit of the working tree would have."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def measure(folder: Path) -> Times:
    checkout(folder)
    began = monotonic()
    demo = subprocess.Popen(["make", "demo", "ARGS=--seconds 5"], cwd=folder, stdout=subprocess.PIPE, text=True)
    install = first = None
    with demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if install is None and line.startswith(".venv/bin/steelyard demo"):  # make says what it runs
                install = monotonic() - began
            if first is None and line.startswith("first answer") and install is not None:
                first = monotonic() - began - install
    if demo.returncode or install is None or first is None:
        raise SystemExit(f"make demo ended with exit code {demo.returncode}, and without an answer")
    size = sum(path.stat().st_size for path in (folder / ".venv").rglob("*") if path.is_file())
    return Times(install, first, size)


def report(times: list[Times], command: str) -> str:
    install, first = (median(column) for column in ([t.install for t in times], [t.first_answer for t in times]))
    rows = [
        ["install (`pip`, from PyPI or its cache)", f"{install:.0f} s", ""],
        ["first answer, from the end of the install", f"{first:.1f} s", f"≤ {GOAL_SECONDS:.0f} s"],
        ["`.venv` afterwards", f"{times[-1].size / 1e6:.0f} MB", ""],
    ]
    return f"{markdown_table(['', 'measured', 'goal'], rows)}\n\n{describe(command)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--update-docs", action="store_true")
    options = parser.parse_args()
    times = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="demo-start-") as folder:
            times.append(measure(Path(folder)))
    text = report(times, f"python -m benchmarks.demo_start --rounds {options.rounds}")
    print(text)
    if options.update_docs:
        write_section("demo.md", SECTION, text)


if __name__ == "__main__":
    main()
