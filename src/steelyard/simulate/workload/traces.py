"""Readers for public workload traces: each row is one request, in order of arrival.

A row keeps apart what a balancer may know on arrival (`features`) from the true cost (`work`). Input that does not fit
raises `TraceError` naming file, line and column. `builtin:NAME` is a trace of the package (data/README.md).
"""

import csv
import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, cast

StrPath = str | os.PathLike[str]

BUILTIN: dict[str, str] = {
    "builtin:azure": "azure_llm_2023_conv.csv.gz",
    "builtin:mooncake": "mooncake_synthetic.jsonl.gz",
}
SYNTHETIC_DIFFUSION = "builtin:diffusion"  # rows like Alibaba's, drawn by diffusion.py
MAX_LINE_BYTES = 1 << 20  # a prompt of a million tokens has some 2,000 hash_ids
MAX_BACKWARD_SECONDS = 1.0  # several writers to one log swap neighbours

# The names of `TraceRow.features`, by format. Output tokens are not known at arrival.
_ALIBABA_PROMPT = ("prompt_length", "negative_prompt_length")
_ALIBABA_IMAGES = ("num_images_per_prompt", "num_inference_steps", "num_lora")
FEATURES: dict[str, tuple[str, ...]] = {
    "azure": ("input_tokens",),
    "mooncake": ("input_tokens",),
    "alibaba": (*_ALIBABA_PROMPT, *_ALIBABA_IMAGES),
}
_ALIBABA_JOB = ("gmt_create", "predict_status", "exec_time_seconds", "groupId", "checkpoint_model_version_id")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "mooncake": ("timestamp", "input_length", "output_length", "hash_ids"),
    "alibaba": (*_ALIBABA_JOB, *FEATURES["alibaba"]),
}

_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)


class TraceError(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class TraceRow:
    arrival: float  # seconds since the first row
    features: tuple[float, ...]  # known at arrival, named by FEATURES
    work: tuple[float, ...]  # (input tokens, output tokens), or (seconds,) for alibaba
    prefix: tuple[int, ...] = ()  # ids of blocks of the prompt (mooncake)
    session: str = ""  # alibaba groupId
    kind: str = ""  # the model (alibaba checkpoint)


def detect(path: StrPath) -> str:
    """By half of its columns in the first line: `read_trace` can name a missing one."""
    if path == SYNTHETIC_DIFFUSION:
        return "alibaba"
    for number, line in _lines(path):
        is_json = line.lstrip().startswith("{")
        names = set(_parse_json(path, number, line) if is_json else _parse_csv(path, number, line))
        for fmt, columns in _COLUMNS.items():
            if (fmt == "mooncake") == is_json and 2 * len(names.intersection(columns)) >= len(columns):
                return fmt
        raise TraceError(f"{path}:{number}: not a known trace ({', '.join(_COLUMNS)}): {_short(line.strip())}")
    raise TraceError(f"{path}:1: empty file")


def read_trace(path: StrPath, fmt: str | None = None, limit: int | None = None) -> Iterator[TraceRow]:
    """At most `limit` rows, by arrival. Azure and mooncake are streamed: a bad row raises when it is reached."""
    name = detect(path) if fmt is None else fmt
    if name not in _READERS:
        raise TraceError(f"{path}: unknown format {name!r}, known are {', '.join(_READERS)}")
    if path == SYNTHETIC_DIFFUSION:
        from .diffusion import synthetic_rows  # it imports TraceRow from here

        return islice(synthetic_rows(), limit)
    return islice(_not_empty(path, _READERS[name](path)), limit)


def spread_stamps(rows: Iterable[TraceRow]) -> Iterator[TraceRow]:
    """Of a recording whose stamps are seconds apart: rows of one stamp come evenly until the next."""
    together: list[TraceRow] = []
    for row in rows:
        if together and row.arrival > together[0].arrival:
            yield from _spread(together, row.arrival)
            together = []
        together.append(row)
    yield from together


def _spread(rows: list[TraceRow], end: float) -> Iterator[TraceRow]:
    start = rows[0].arrival
    for place, row in enumerate(rows):
        yield replace(row, arrival=start + (end - start) * place / len(rows))


def _not_empty(path: StrPath, rows: Iterator[TraceRow]) -> Iterator[TraceRow]:
    first = next(rows, None)
    if first is None:  # else it looks like a run without failures
        raise TraceError(f"{path}: no rows")
    yield first
    yield from rows


def _azure(path: StrPath) -> Iterator[TraceRow]:
    clock = _Clock(per_second=10**9)
    for record in _csv_records(path, _COLUMNS["azure"]):
        arrival = clock.arrival(record, "TIMESTAMP", record.instant("TIMESTAMP"))
        work = (record.number("ContextTokens"), record.number("GeneratedTokens"))
        yield TraceRow(arrival, features=work[:1], work=work)


def _mooncake(path: StrPath) -> Iterator[TraceRow]:
    clock = _Clock(per_second=1000)
    for number, line in _lines(path):
        record = _Record(path, number, _parse_json(path, number, line))
        arrival = clock.arrival(record, "timestamp", record.number("timestamp"))
        work = (record.number("input_length"), record.number("output_length"))
        yield TraceRow(arrival, features=work[:1], work=work, prefix=record.ids("hash_ids"))


def _alibaba(path: StrPath) -> Iterator[TraceRow]:
    """Only rows that succeeded show their cost. A blank feature is 0."""
    records = _csv_records(path, _COLUMNS["alibaba"])
    rows = [(record.instant("gmt_create"), record) for record in records if record.text("predict_status") == "SUCCEED"]
    rows.sort(key=lambda row: row[0])  # equal times keep the file's order
    clock = _Clock(per_second=10**9)
    for instant, record in rows:
        yield TraceRow(
            clock.arrival(record, "gmt_create", instant),
            features=tuple(record.number(name, blank=0.0) for name in FEATURES["alibaba"]),
            work=(record.number("exec_time_seconds"),),
            session=record.text("groupId"),
            kind=record.text("checkpoint_model_version_id"),
        )


_READERS: dict[str, Callable[[StrPath], Iterator[TraceRow]]] = {
    "azure": _azure,
    "mooncake": _mooncake,
    "alibaba": _alibaba,
}


@dataclass(frozen=True, slots=True)
class _Record:
    """One line's values by column, and its place for errors."""

    path: StrPath
    line: int
    values: Mapping[str, object]

    def error(self, column: str, reason: str) -> TraceError:
        return TraceError(f"{self.path}:{self.line}: {column}: {reason}")

    def value(self, column: str) -> object:
        if column not in self.values:
            raise self.error(column, "missing")
        return self.values[column]

    def text(self, column: str) -> str:
        return str(self.value(column)).strip()

    def number(self, column: str, blank: float | None = None) -> float:
        """`blank`, when given, is the value of a blank cell."""
        value = self.value(column)
        if blank is not None and isinstance(value, str) and not value.strip():
            return blank
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.error(column, f"{_short(value)} is not a number")
        try:
            result = float(value)
        except (ValueError, OverflowError):
            raise self.error(column, f"{_short(value)} is not a number") from None
        if not math.isfinite(result) or result < 0:
            raise self.error(column, f"{_short(value)} is not a finite number of 0 or more")
        return result

    def instant(self, column: str) -> int:
        """Nanoseconds since 1970: `datetime` drops Azure's seventh decimal. No zone is UTC."""
        text = self.text(column)
        match = _TIMESTAMP.fullmatch(text)
        if match is None:
            raise self.error(column, f"{_short(text)} is not a time")
        whole, fraction, zone = match.groups()
        try:
            seconds = int(datetime.fromisoformat(whole + (zone or "Z")).timestamp())
        except ValueError as error:
            raise self.error(column, f"{_short(text)} is not a time: {error}") from None
        return seconds * 10**9 + int((fraction or "").ljust(9, "0"))

    def ids(self, column: str) -> tuple[int, ...]:
        value = self.value(column)
        # `type`, as true is an int to Python
        if not isinstance(value, list) or any(type(item) is not int or item < 0 for item in value):
            raise self.error(column, f"{_short(value)} is not a list of ids (whole numbers of 0 or more)")
        return tuple(value)


class _Clock:
    """Arrivals since the first time stamp, never backwards."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._first: float | None = None
        self._latest = 0.0

    def arrival(self, record: _Record, column: str, stamp: float) -> float:
        if self._first is None:
            self._first = stamp
        seconds = (stamp - self._first) / self._per_second
        if seconds < self._latest - MAX_BACKWARD_SECONDS:
            raise record.error(column, f"time goes back by {self._latest - seconds:.3f} s")
        self._latest = max(self._latest, seconds)
        return self._latest


def _csv_records(path: StrPath, columns: Iterable[str]) -> Iterator[_Record]:
    header: list[str] = []
    for number, line in _lines(path):
        values = _parse_csv(path, number, line)
        if not header:
            header = values
            _check_header(path, number, header, columns)
        elif len(values) != len(header):
            raise TraceError(f"{path}:{number}: {len(values)} values for {len(header)} columns")
        else:
            yield _Record(path, number, dict(zip(header, values, strict=True)))


def _check_header(path: StrPath, number: int, header: list[str], columns: Iterable[str]) -> None:
    for column in columns:
        if column not in header:
            raise TraceError(f"{path}:{number}: {column}: missing column")
        if header.count(column) > 1:
            raise TraceError(f"{path}:{number}: {column}: repeated column")


def _parse_csv(path: StrPath, number: int, line: str) -> list[str]:
    """One line alone, so a stray quote cannot swallow the rows after it."""
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise TraceError(f"{path}:{number}: not CSV: {error}") from None


def _parse_json(path: StrPath, number: int, line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}:{number}: not JSON (cut short?): {error}") from None
    if not isinstance(value, dict):
        raise TraceError(f"{path}:{number}: {_short(value)} is not a JSON object")
    return value


def _lines(path: StrPath) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    number = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
                if len(raw) == MAX_LINE_BYTES:
                    raise TraceError(f"{path}:{number}: longer than {MAX_LINE_BYTES >> 20} MiB: not a line of a trace")
                # without the byte order mark of Windows tools
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}:{number}: not UTF-8 (byte {error.start + 1} of the line)") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: not a whole gzip file: {error}") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error


def _open(path: StrPath) -> IO[bytes]:
    text = os.fspath(path)
    if text.startswith("builtin:"):
        if text not in BUILTIN:
            known = ", ".join([*BUILTIN, SYNTHETIC_DIFFUSION])
            raise TraceError(f"{path}: no such trace in the package; there are {known}")
        text = str(Path(__file__).parent / "data" / BUILTIN[text])
    return cast(IO[bytes], gzip.open(text)) if text.endswith(".gz") else open(text, "rb")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
