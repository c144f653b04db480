"""The supervisor's log: one line an event on standard error, as text or JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import TextIO

ROOT_LOGGER = "steelyard"
_LEVEL_COLOURS = {"warning": "33", "error": "31", "critical": "31"}
LEVELS = ("debug", "info", "warning", "error")


def configure_logging(format: str = "text", stream: TextIO | None = None, level: str = "info") -> logging.Logger:
    """Makes the loggers `steelyard` and `asyncio` write to `stream`; returns the first."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    coloured = stream.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter(coloured=coloured))
    logging.raiseExceptions = False  # the terminal may be gone
    for name in (ROOT_LOGGER, "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        least = getattr(logging, level.upper())
        logger.setLevel(least if name == ROOT_LOGGER else max(least, logging.WARNING))
    return logging.getLogger(ROOT_LOGGER)


class TextFormatter(logging.Formatter):
    """`2026-11-15T12:40:01.123Z info    listening on http://127.0.0.1:8080`"""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self.coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        shown = f"{level:<7}"
        if self.coloured and level in _LEVEL_COLOURS:
            shown = f"\x1b[{_LEVEL_COLOURS[level]}m{shown}\x1b[0m"
        return f"{_time(record)} {shown} {_message(self, record, ' | ')}"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "message": _message(self, record, "\n")}
        if (process := getattr(record, "process_name", None)) is not None:
            line["process"] = process
        line |= getattr(record, "fields", {})
        return json.dumps(line, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"


def _message(formatter: logging.Formatter, record: logging.LogRecord, divider: str) -> str:
    """On one line, and without control characters: foreign text must not move the terminal's cursor."""
    text = record.getMessage()
    if record.exc_info:
        text += "\n" + formatter.formatException(record.exc_info)
    lines = [line.rstrip() for line in text.splitlines()]
    return divider.join("".join(c if c.isprintable() else "\ufffd" for c in line) for line in lines)
