"""Finds one request in a decision log. Files may be large: reads them from the end, in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from .lines import FLEET_PREFIX, DecisionLine, FleetLine, current_line

T = TypeVar("T")
BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20  # longer ones are not ours
MAX_LINES = 100  # kept: a client may use one id for everything
MAX_IDS = 10  # of a prefix
REQUEST_PREFIX = b'{"kind":"request","id":"'


class SearchResult(msgspec.Struct):
    """`lines`, oldest first; or `ids`, if several have the prefix."""

    lines: list[DecisionLine] = []
    ids: list[str] = []
    sample_rate: float | None = None  # the latest in the log


def search(paths: Sequence[Path], wanted: str) -> SearchResult:
    """In these files, the newest first. An exact id goes before a prefix."""
    found = SearchResult()
    exact: list[DecisionLine] = []
    alike: dict[str, list[DecisionLine]] = {}
    begins = REQUEST_PREFIX + msgspec.json.encode(wanted.encode(errors="replace").decode())[1:-1]
    for path in paths:
        for raw in lines_from_end(path):
            if raw.startswith(begins):
                line = _decoded(raw, DecisionLine)
                if line is None:
                    continue
                if line.id == wanted:
                    exact.append(line)
                elif len(alike) <= MAX_IDS or line.id in alike:
                    alike.setdefault(line.id, []).append(line)
                    del alike[line.id][MAX_LINES:]
                if len(exact) >= MAX_LINES:
                    break
            elif found.sample_rate is None and raw.startswith(FLEET_PREFIX) and (fleet := _decoded(raw, FleetLine)):
                found.sample_rate = fleet.sample_rate
    if not exact and len(alike) > 1:
        found.ids = sorted(alike)[:MAX_IDS]
        return found
    lines = exact or next(iter(alike.values()), [])
    found.lines = sorted(lines[:MAX_LINES], key=lambda line: line.time)
    return found


def lines_from_end(path: Path, block: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The last first. What follows the last newline is no line yet."""
    with path.open("rb") as file:
        left = file.seek(0, os.SEEK_END)
        rest = b""  # the end of a line whose beginning is not read yet
        last = True
        while left:
            size = min(block, left)
            left -= size
            file.seek(left)
            parts = (file.read(size) + rest).split(b"\n")
            rest = parts[0] if len(parts[0]) <= MAX_LINE_BYTES else b""
            complete = parts[1:-1] if last and len(parts) > 1 else parts[1:]
            last = last and len(parts) == 1
            yield from reversed(complete)
        if rest and not last:
            yield rest


def _decoded(raw: bytes, kind: type[T]) -> T | None:
    """None: torn, where a disk was full."""
    try:
        return msgspec.json.decode(current_line(raw), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
