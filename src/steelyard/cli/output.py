"""Where commands write: several files into one directory, all or nothing; and consoles."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from rich.console import Console

from ..core.errors import OptionError


def check_directory(directory: Path, names: Mapping[str, object] | list[str]) -> None:
    """Asks before a long run whether the files can be written."""
    if directory.exists() and not directory.is_dir():
        raise OptionError(f"--out {directory}: there is a file of that name")
    for name in names:
        if (directory / name).is_dir():
            raise OptionError(f"--out {directory}: {name} is a directory there")
    nearest = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise OptionError(f"--out {directory}: cannot write to {nearest}")


def write_atomically(directory: Path, files: Mapping[str, str]) -> None:
    """Written aside first, then moved into place. An error leaves nothing behind."""
    check_directory(directory, files)
    directory = directory.absolute()
    missing = [parent for parent in directory.parents if not parent.exists()]
    aside = directory.parent / f".{directory.name}.{token_hex(8)}"
    try:
        aside.mkdir(parents=True)
        for name, text in files.items():
            (aside / name).write_text(text, encoding="utf-8", newline="\n")
        if directory.exists():
            for name in files:
                os.replace(aside / name, directory / name)
            aside.rmdir()
        else:
            aside.rename(directory)
    except BaseException as problem:
        shutil.rmtree(aside, ignore_errors=True)
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()
        if isinstance(problem, OSError):
            raise OptionError(f"--out {directory}: {problem.strerror or problem}") from problem
        raise


PIPED_COLUMNS = 200  # of a file or a pipe: grep finds whole words


def is_terminal() -> bool:
    return sys.stdout.isatty()


def stdout(piped: int = PIPED_COLUMNS) -> Console:
    narrow = is_terminal() or "COLUMNS" in os.environ
    return Console(width=None if narrow else piped, highlight=False, emoji=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, emoji=False)
