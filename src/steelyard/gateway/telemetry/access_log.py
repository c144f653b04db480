"""The access log: one line a request, JSON or text. Never headers, bodies or query strings: they carry secrets.

Lines of JSON are made as requests end (access_log_json.py); lines of text are made of those, some at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic

from ...config import AccessLogConfig
from .access_log_json import JsonLineEncoder
from .log_file import LogFile

TEXT_BATCH_BYTES = 8 << 10  # of JSON that become text at once: less than a millisecond
TEXT_FIELDS = (
    "model", "tenant", "replica", "attempts", "queue_ms", "bytes_in", "bytes_out",
    "prompt_tokens", "output_tokens", "cached_tokens", "reason", "slo", "fault", "dropped",
)  # fmt: skip


class AccessLog(LogFile):
    def __init__(self, settings: AccessLogConfig, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(settings.path, "access-log", clock=clock)
        self.settings = settings
        if settings.format == "json":
            self.json = JsonLineEncoder(self._flush_bytes, clock, self.flush)
        else:
            self.json = JsonLineEncoder(TEXT_BATCH_BYTES, clock, self._make_text)
        self.sink = self.json.finished  # called for each request

    def _make_text(self) -> None:
        self._make_lines()
        self._hand_over_much()

    def _make_lines(self) -> None:
        if self.json and self.settings.format != "json":
            for line in self.json.take(self._take_dropped()).splitlines():
                self._append(_text(json.loads(line)))

    def _hand_over(self, room: float = 0.0) -> None:
        if self.json:
            self._put(self.json.take(self._take_dropped()), room)
        super()._hand_over(room)
        self.json.set_clock()


def _text(said: dict[str, str | int | float]) -> bytes:
    words = [_printable_word(said[name]) for name in ("time", "client", "method", "path", "status", "outcome")]
    words.append(f"{said['ms']:.1f}ms")
    words += [f"{name}={_printable_word(said[name])}" for name in TEXT_FIELDS if said.get(name)]
    words.append(f"id={_printable_word(said['id'])}")
    return " ".join(words).encode()


def _printable_word(value: object) -> str:
    """One word, whatever a client wrote: a line stays a line."""
    return "".join(c if c.isprintable() and not c.isspace() else "?" for c in str(value))
