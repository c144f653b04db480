"""Who is tied to a process ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from steelyard.demo.die_with_parent import tied_command
from tests.harness.processes import alive
from tests.harness.waiting import wait_until

CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
PARENT = """
import subprocess, sys, time
from steelyard.demo.die_with_parent import tied_command
subprocess.Popen([*tied_command("child"), "one", "two"])
time.sleep(600)
"""


def start(tmp_path: Path) -> subprocess.Popen[str]:
    (tmp_path / "child.py").write_text("import sys\nassert sys.argv[1:] == ['one', 'two']\n" + CHILD)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )


def test_the_child_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    with start(tmp_path) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
        wait_until(lambda: not alive(child), "the child ends")


def test_a_child_that_comes_too_late_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    python, *words = tied_command("child")
    words[words.index(str(os.getpid()))] = "1"  # a parent that it no longer has
    done = subprocess.run([python, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
