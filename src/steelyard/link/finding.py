"""Lines of a decision log that are about one request: files may be large, so they are read from the end, in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .decision_lines import DecisionLine, FleetLine

BLOCK = 1 << 20
LONGEST = 16 << 20  # bytes of a line; what is longer is none of ours
MOST = 100  # lines that are kept: one id may be a client's for everything
NAMED = 10  # ids, where a prefix fits several
REQUEST = b'{"kind":"request","id":"'
FLEET = b'{"kind":"fleet",'


class Found(msgspec.Struct):
    """`lines`, oldest first; or `ids`, if more than one begins with what was asked for."""

    lines: list[DecisionLine] = []
    ids: list[str] = []
    sample: float | None = None  # share of requests that was written down of late, if that was found


def find(paths: Sequence[Path], wanted: str) -> Found:
    """In these files, the newest first. An id that is exactly `wanted` goes before those that only begin with it."""
    found = Found()
    exact: list[DecisionLine] = []
    alike: dict[str, list[DecisionLine]] = {}
    begins = REQUEST + msgspec.json.encode(wanted.encode(errors="replace").decode())[1:-1]
    for path in paths:
        for raw in from_the_end(path):
            if raw.startswith(begins):
                line = _request(raw)
                if line is None:
                    continue
                if line.id == wanted:
                    exact.append(line)
                elif len(alike) <= NAMED or line.id in alike:
                    alike.setdefault(line.id, []).append(line)
                    del alike[line.id][MOST:]
                if len(exact) >= MOST:
                    break
            elif found.sample is None and raw.startswith(FLEET):
                found.sample = _sample(raw)
    if not exact and len(alike) > 1:
        found.ids = sorted(alike)[:NAMED]
        return found
    lines = exact or next(iter(alike.values()), [])
    found.lines = sorted(lines[:MOST], key=lambda line: line.time)
    return found


def from_the_end(path: Path, block: int = BLOCK) -> Iterator[bytes]:
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
            rest = parts[0] if len(parts[0]) <= LONGEST else b""
            complete = parts[1:-1] if last and len(parts) > 1 else parts[1:]
            last = last and len(parts) == 1
            yield from reversed(complete)
        if rest and not last:
            yield rest


def _request(raw: bytes) -> DecisionLine | None:
    try:
        return msgspec.json.decode(raw, type=DecisionLine)
    except (msgspec.DecodeError, UnicodeDecodeError):  # torn, where a disk was full
        return None


def _sample(raw: bytes) -> float | None:
    try:
        return msgspec.json.decode(raw, type=FleetLine).sample
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
