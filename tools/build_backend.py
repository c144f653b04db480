"""The build backend (PEP 517): setuptools', and the choice whether the hot modules are compiled with mypyc.

STEELYARD_COMPILE=1 compiles or fails, 0 does not compile. Without it they are compiled where that is tested (CPython on
Linux) if there is a C compiler, and the package is pure Python otherwise. mypy is a requirement of the build only then.
An editable install runs the source and is never compiled. See docs/decisions/0034-compiled-by-default.md.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # the hooks that pip calls

VARIABLE = "STEELYARD_COMPILE"
# The libraries are here for their types: without those of msgspec, bodies are read through slower code.
COMPILE_REQUIREMENTS = ["mypy>=2.4,<2.5", "httptools>=0.6", "msgspec>=0.19", "numpy>=1.26"]


def get_requires_for_build_wheel(config_settings: Mapping[str, object] | None = None) -> list[str]:
    more = COMPILE_REQUIREMENTS if is_compiling() else []
    return [*build_meta.get_requires_for_build_wheel(config_settings), *more]


def is_compiling(environ: Mapping[str, str] = os.environ) -> bool:
    """Exits with one sentence if STEELYARD_COMPILE demands what cannot be."""
    value = environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        sys.exit(f"error: {VARIABLE}={value}: 1 compiles or fails, 0 does not compile, unset compiles where it can")
    if value == "0":
        return False
    obstacle = find_obstacle(environ)
    if value == "1" and obstacle:
        sys.exit(f"error: {VARIABLE}=1, but {obstacle}")
    return not obstacle and (value == "1" or is_tested())


def is_tested() -> bool:
    """Where the compiled form is tested: elsewhere it is compiled only on demand."""
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return sys.platform == "linux" and sys.version_info < (3, 15) and not free_threaded


def find_obstacle(environ: Mapping[str, str] = os.environ) -> str:
    """Why the hot modules cannot be compiled here; empty if they can."""
    if platform.python_implementation() != "CPython" or sys.version_info < (3, 11):
        return f"this is {platform.python_implementation()} {platform.python_version()}: needs CPython 3.11 or newer"
    if sys.platform == "win32":
        return ""  # setuptools knows where Visual Studio is
    compiler = shlex.split(environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler, path=environ.get("PATH")) is None:
        return f"there is no C compiler {compiler!r} in PATH (Debian: apt install gcc)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python.h is missing (Debian: apt install python3-dev)"
    return ""
