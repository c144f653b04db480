"""Is the program of a runtime there? Looked at when somebody asks: at a reload it may be there again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .scaling import RuntimeConfig
from .templates import split_command


def missing_program_error(runtime: RuntimeConfig) -> str:
    """Why the first word of its command cannot be run; empty: it can be, or only a start can tell."""
    try:
        program = split_command(runtime.command)[0]
        return _missing_program_error(
            program, Path(runtime.folder), runtime.environment.get("PATH", os.environ.get("PATH", ""))
        )
    except ValueError:  # a NUL, a quote that does not end: told elsewhere
        return ""


def redacted_command(runtime: RuntimeConfig) -> str:
    """For people: without its options, which may be long, and secret."""
    shown: list[str] = []
    for word in split_command(runtime.command):
        if word.startswith("-") and word != "-m":  # python -m uvicorn
            break
        name, is_set, _ = word.partition("=")  # env KEY=secret python server.py
        shown.append(f"{name}=…" if is_set else word)
    return " ".join(shown)


def _missing_program_error(program: str, folder: Path, path: str) -> str:
    if "{" in program + path:  # not known before it is filled in
        return ""
    if "/" not in program:
        return "" if shutil.which(program, path=path) else f"there is no program {program} on the PATH"
    found = folder / program
    if not found.is_file():
        return f"there is no program {found}"
    return "" if os.access(found, os.X_OK) else f"{found} may not be run"
