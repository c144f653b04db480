"""Python as on macOS or Windows, pretended: no such machine is at hand, but what they lack can be taken away."""

from __future__ import annotations

import os
import subprocess
import sys

GATEWAY_ONLY = ("uvloop", "httptools", "uvicorn", "starlette", "dns")  # not installed there: see pyproject.toml
LIBRARIES = (
    "click",
    "msgspec",
    "mypy_extensions",
    "numpy",
    "rich.console",
    "rich.live",
    "rich.progress",
    "rich.table",
    "yaml",
)
ROOTS = tuple(name.partition(".")[0] for name in LIBRARIES)
NOT_ON_WINDOWS = ("fcntl", "grp", "pwd", "resource", "termios", "tty")
LINUX_CALLS = ("memfd_create", "sched_getaffinity", "sched_setaffinity", "pidfd_open", "splice", "eventfd")
POSIX_CALLS = ("fork", "getuid", "geteuid", "sysconf", "register_at_fork", "killpg", "setsid", "uname")

_PREAMBLE = """
import builtins, io, os, signal, sys
class _Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, _Missing())
for name in {missing!r}:
    sys.modules.pop(name, None)
# Their own branches for other systems are their affair.
import asyncio, multiprocessing, random, selectors, shutil, sqlite3, ssl, subprocess, tempfile, threading, zoneinfo
{libraries}
for call in {calls!r}:
    if hasattr(os, call):
        delattr(os, call)
_open = io.open
def _no_proc(file, *args, **kwargs):
    if str(file).startswith(("/proc", "/sys")):
        raise FileNotFoundError(2, "No such file or directory", str(file))
    return _open(file, *args, **kwargs)
builtins.open = io.open = _no_proc
sys.platform = {platform!r}
"""


def run_as(platform: str, program: str, *, bare: bool = False) -> subprocess.CompletedProcess[str]:
    """`program` as on darwin or win32, without what that system lacks; `bare`: without any library either."""
    windows = platform == "win32"
    preamble = _PREAMBLE.format(
        platform=platform,
        libraries="" if bare else f"import {', '.join(LIBRARIES)}",
        missing=(*GATEWAY_ONLY, *(ROOTS if bare else ()), *(NOT_ON_WINDOWS if windows else ())),
        calls=(*LINUX_CALLS, *(POSIX_CALLS if windows else ())),
    )
    return subprocess.run(
        [sys.executable, "-c", preamble + program],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
