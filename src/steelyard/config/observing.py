"""The parts of the configuration about what is promised, written down and shown."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.request import INFINITY
from ..core.slo import Promise
from ..documents import Seconds, Share, Size
from .parts import Count, Part, Percent, about

DAY = 86400.0


class TenantSlo(Part, frozen=True):
    """What is promised to one tenant; what is not said here is as for all others."""

    latency: Annotated[Seconds | None, about("longest that a request should take")] = None
    percentile: Annotated[Percent | None, about("percent of requests for which `latency` and `first_byte` hold")] = None
    availability: Annotated[Percent | None, about("percent of requests that should succeed")] = None
    first_byte: Annotated[Seconds | None, about("longest that the first byte of a stream should take")] = None


class Slo(Part, frozen=True):
    """What is promised to those who use the model."""

    latency: Annotated[Seconds | None, about("longest that a request should take")] = None
    percentile: Annotated[Percent, about("percent of requests for which `latency` and `first_byte` hold")] = 99.0
    availability: Annotated[Percent | None, about("percent of requests that should succeed")] = None
    first_byte: Annotated[
        Seconds | None,
        about("longest that the first byte of a stream should take; then only this counts for it, not `latency`"),
    ] = None
    period: Annotated[Seconds, about("time of an error budget, at least an hour")] = Seconds(30 * DAY)
    tenants: Annotated[dict[str, TenantSlo], about("other promises to some tenants, by what `tenant_header` says")] = (
        msgspec.field(default_factory=dict)
    )

    def promise(self) -> Promise:
        return Promise(_or_never(self.latency), self.percentile, self.availability or 0.0, _or_never(self.first_byte))

    def promises(self) -> dict[str, Promise]:
        """To tenants that have their own."""
        return {tenant: self._promise_to(other) for tenant, other in self.tenants.items()}

    def _promise_to(self, other: TenantSlo) -> Promise:
        own = self.promise()
        return Promise(
            own.latency if other.latency is None else float(other.latency),
            other.percentile or own.percentile,
            other.availability or own.availability,
            own.first_byte if other.first_byte is None else float(other.first_byte),
        )


def _or_never(seconds: Seconds | None) -> float:
    return INFINITY if seconds is None else float(seconds)


class History(Part, frozen=True):
    """How requests stood to what was promised, kept over restarts for `steelyard report`."""

    enabled: Annotated[bool, about("whether it is kept")] = True
    path: Annotated[
        str,
        about(
            "SQLite file; empty: `NAME.sqlite` in $STATE_DIRECTORY, or `steelyard` in $XDG_STATE_HOME, ~/.local/state"
        ),
    ] = ""
    keep: Annotated[Seconds, about("time after which it is forgotten")] = Seconds(400 * DAY)


class Tracing(Part, frozen=True):
    """Spans of requests, sent to an OpenTelemetry collector. Needs `pip install 'steelyard[otel]'`."""

    endpoint: Annotated[
        str,
        about(
            "where to, OTLP over HTTP; empty: see OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT",
            examples=["http://127.0.0.1:4318/v1/traces"],
        ),
    ] = ""
    sample: Annotated[Share, about("share of requests to trace, where no caller decides")] = Share(0.01)
    parent: Annotated[bool, about("whether a caller's `traceparent` decides, where it comes with one")] = True
    headers_file: Annotated[str, about("file of headers to send along, a `name: value` a line")] = ""
    service: Annotated[str, about("service.name of the spans")] = "steelyard"


class DecisionLog(Part, frozen=True):
    """Why requests went where they went: a line for each, for `steelyard explain` and `steelyard simulate --replay`."""

    path: Annotated[str, about("file to append to")]
    sample: Annotated[Share, about("share of requests written down; to replay, 1")] = Share(0.01)
    candidates: Annotated[Count, about("most replicas that a line tells of")] = 16
    most: Annotated[Size, about("size at which the file is renamed to `path.1` and begun anew")] = Size(1 << 30)
