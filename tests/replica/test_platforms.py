"""The agent needs Python 3.9 and its standard library, on any system."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import steelyard

from ..harness.other_platforms import run_as

PACKAGE = Path(steelyard.__file__).parent


def older_python() -> str | None:
    """One that runs: pyenv has names of those that are not chosen, too."""
    names = ("python3.9", "python3.10", "pypy3")
    homes = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    found = [*map(str, homes), *filter(None, map(shutil.which, names))]
    return next((one for one in found if subprocess.run([one, "-c", ""], check=False).returncode == 0), None)


OLDER = older_python()
PROGRAM = """
import asyncio
from steelyard.replica import ReplicaAgent

async def app(scope, receive, send):
    if scope["path"] == "/broken":
        raise KeyError("the app's own")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"42"})

async def ask(path):
    sent = []
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}
    async def send(message):
        sent.append(message)
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": [], "root_path": "", "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1)}
    await served(scope, receive, send)
    return sent[0]["status"]

agent = ReplicaAgent(model="m")
served = agent.wrap(app)

async def main():
    before = await ask("/predict")
    agent.ready()
    print(before, await ask("/predict"))
    try:
        await ask("/broken")
    except KeyError as problem:
        print(problem)

asyncio.run(main())
"""

ANSWERS = """503 200
"the app's own"
"""


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_the_agent_works_without_a_library_where_there_is_no_proc(platform: str) -> None:
    done = run_as(platform, PROGRAM, bare=True)
    assert done.stdout == ANSWERS, done.stderr


def test_the_agent_is_written_for_python_3_9() -> None:
    used = [
        *(PACKAGE / "replica").rglob("*.py"),
        PACKAGE / "units.py",
        PACKAGE / "entry.py",
        PACKAGE / "__init__.py",
        PACKAGE / "core/errors.py",
    ]
    for file in used:
        ast.parse(file.read_text(encoding="utf-8"), str(file), feature_version=(3, 9))


@pytest.mark.skipif(OLDER is None, reason="no Python older than 3.11 here (Debian: pypy3)")
def test_the_agent_runs_on_an_older_python_and_the_others_say_what_they_need() -> None:
    assert OLDER is not None
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([OLDER, "-c", program], env=env, capture_output=True, encoding="utf-8", check=False)

    done = run(PROGRAM)
    assert done.stdout == ANSWERS, done.stderr
    assert "needs Python 3.11 or newer" in run("from steelyard.entry import main; main()").stderr
    library = run("from steelyard import LoadBalancer").stderr
    assert "ImportError: steelyard.LoadBalancer needs Python 3.11 or newer" in library
