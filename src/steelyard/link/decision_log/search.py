"""Lines of a decision log that are about one request: files may be large, so they are read from the end, in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .lines import FLEET_PREFIX, DecisionLine, FleetLine, current_line

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20  # bytes of a line; what is longer is none of ours
MAX_LINES = 100  # lines that are kept: one id may be a client's for everything
MAX_IDS = 10  # ids, where a prefix fits several
REQUEST_PREFIX = b'{"kind":"request","id":"'


class SearchResult(msgspec.Struct):
    """`lines`, oldest first; or `ids`, if more than one begins with what was asked for."""

    lines: list[DecisionLine] = []
    ids: list[str] = []
    sample_rate: float | None = None  # recent share of requests that was logged, if found


def search(paths: Sequence[Path], wanted: str) -> SearchResult:
    """In these files, the newest first. An id that is exactly `wanted` goes before those that only begin with it."""
    found = SearchResult()
    exact: list[DecisionLine] = []
    alike: dict[str, list[DecisionLine]] = {}
    begins = REQUEST_PREFIX + msgspec.json.encode(wanted.encode(errors="replace").decode())[1:-1]
    for path in paths:
        for raw in lines_from_end(path):
            if raw.startswith(begins):
                line = _request(raw)
                if line is None:
                    continue
                if line.id == wanted:
                    exact.append(line)
                elif len(alike) <= MAX_IDS or line.id in alike:
                    alike.setdefault(line.id, []).append(line)
                    del alike[line.id][MAX_LINES:]
                if len(exact) >= MAX_LINES:
                    break
            elif found.sample_rate is None and raw.startswith(FLEET_PREFIX):
                found.sample_rate = _sample_rate(raw)
    if not exact and len(alike) > 1:
        found.ids = sorted(alike)[:MAX_IDS]
        return found
    lines = exact or next(iter(alike.values()), [])
    found.lines = sorted(lines[:MAX_LINES], key=lambda line: line.time)
    return found


def lines_from_end(path: Path, block: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The lines of a file, the last first. What follows the last newline is not a line yet."""
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


def _request(raw: bytes) -> DecisionLine | None:
    try:
        return msgspec.json.decode(current_line(raw), type=DecisionLine)
    except (msgspec.DecodeError, UnicodeDecodeError):  # torn, where a disk was full
        return None


def _sample_rate(raw: bytes) -> float | None:
    try:
        return msgspec.json.decode(current_line(raw), type=FleetLine).sample_rate
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
