"""The access log: one line a request, JSON or text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, time
from typing import Any

import msgspec

from ...config import AccessLogConfig as Settings
from ...core.slo.verdicts import SLO_VERDICTS
from ..proxy.exchange import Exchange
from .access_log_json import JsonLineEncoder
from .log_file import LogFile

TEXT_FIELDS = (
    "model", "tenant", "replica", "attempts", "queue_ms", "bytes_in", "bytes_out", "reason", "slo", "fault", "dropped"
)  # fmt: skip


class AccessLogLine(msgspec.Struct):
    """What a line says. Never headers, bodies or query strings: they carry secrets."""

    time: str
    id: str
    client: str
    method: str
    path: str
    status: int
    outcome: str
    ms: float
    model: str = ""
    tenant: str = ""
    replica: str = ""
    attempts: int = 0
    queue_ms: float = 0.0
    first_byte_ms: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    reason: str = ""
    slo: str = ""  # met, late, failed, refused or abandoned (core/slo/verdicts.py); empty: of no model, or only a look
    fault: str = ""  # whose it is that it is not met
    dropped: int = 0  # lines before this one that were lost because the disk did not keep up


class AccessLog(LogFile):
    """`json` makes lines of JSON as requests end; `finished` notes requests for lines of text."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(settings.path, "access-log", clock=clock)
        self.settings = settings
        self.json = JsonLineEncoder(self._flush_bytes, clock, self.flush) if settings.format == "json" else None
        self.sink = self.json.finished if self.json is not None else self.finished  # called for each request

    def finished(self, exchange: Exchange, verdict: str, reason: str, now: float) -> None:
        self._note(
            (
                now,
                exchange.started_at,
                exchange.dispatched_at,
                exchange.first_byte,
                exchange.request_id,
                exchange.client.forwarding.client,
                exchange.route,
                exchange.status,
                verdict,
                exchange.model,
                exchange.tenant,
                exchange.replica_id,
                exchange.attempt_count,
                exchange.body_size,
                exchange.bytes_out,
                reason,
                exchange.slo_verdict if exchange.stats is not None and not exchange.route.health_request else -1,
            )
        )

    def _hand_over(self, room: float = 0.0) -> None:
        if self.json is None:
            super()._hand_over(room)
            return
        if self.json:
            self._put(self.json.take(self._take_dropped()), room)
        self.json.set_clock()

    def _lines(self, notes: list[tuple[Any, ...]]) -> None:
        offset = time() - self._clock()  # the only wall clock in the gateway: a log is for people
        for now, began, sent, first, id, client, route, status, verdict, *rest in notes:
            model, tenant, replica, attempts, size_in, size_out, reason, judgement = rest
            slo, fault = SLO_VERDICTS[judgement] if judgement >= 0 else ("", "")
            line = AccessLogLine(
                time=datetime.fromtimestamp(now + offset, UTC).isoformat(timespec="milliseconds"),
                id=id.decode("latin-1"),
                client=client.decode("latin-1"),
                method=route.method.decode("latin-1"),
                path=route.path,
                status=status,
                outcome=verdict,
                ms=round((now - began) * 1e3, 3),
                model=model,
                tenant=tenant,
                replica=replica,
                attempts=attempts,
                queue_ms=round((sent - began) * 1e3, 3) if sent else 0.0,
                first_byte_ms=round((first - began) * 1e3, 3) if first else 0.0,
                bytes_in=size_in,
                bytes_out=size_out,
                reason=reason,
                slo=slo,
                fault=fault,
                dropped=self._take_dropped(),
            )
            self._append(_text(line))


def _text(line: AccessLogLine) -> bytes:
    words = [
        line.time,
        line.client,
        line.method,
        _printable_word(line.path),
        str(line.status),
        line.outcome,
        f"{line.ms:.1f}ms",
    ]
    rest = msgspec.structs.asdict(line)
    words += [f"{name}={_printable_word(rest[name])}" for name in TEXT_FIELDS if rest[name]]
    words.append(f"id={_printable_word(line.id)}")
    return " ".join(words).encode()


def _printable_word(value: object) -> str:
    """One word, whatever a client wrote: a line stays a line."""
    return "".join(c if c.isprintable() and not c.isspace() else "?" for c in str(value))
