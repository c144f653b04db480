"""SLOs, history, logs and tracing."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import field, structs

from ...core.request import INFINITY
from ...core.slo.verdicts import SloTarget
from ...documents import Seconds, Share, Size
from .base import Count, Percent, Section, described

DAY_SECONDS = 86400.0


class TenantSloConfig(Section, frozen=True):
    """The SLO of one tenant; targets left out are those of the model."""

    latency: Annotated[Seconds | None, described("longest that a request should take")] = None
    percentile: Annotated[Percent | None, described("percent of requests for which the times hold")] = None
    availability: Annotated[Percent | None, described("percent of requests that should succeed")] = None
    first_byte: Annotated[Seconds | None, described("longest that the first byte of a stream should take")] = None
    per_token: Annotated[Seconds | None, described("longest mean time for a further token of a stream")] = None


class SloConfig(Section, frozen=True):
    """The service level objectives of the model."""

    latency: Annotated[Seconds | None, described("longest that a request should take")] = None
    percentile: Annotated[Percent, described("percent of requests for which the times hold")] = 99.0
    availability: Annotated[Percent | None, described("percent of requests that should succeed")] = None
    first_byte: Annotated[Seconds | None, described("longest to the first byte of a stream; replaces `latency`")] = None
    per_token: Annotated[
        Seconds | None, described("longest mean time for a token after the first of a stream; replaces `latency`")
    ] = None
    period: Annotated[Seconds, described("time of an error budget, at least an hour")] = Seconds(30 * DAY_SECONDS)
    tenants: Annotated[dict[str, TenantSloConfig], described("objectives by tenant")] = field(default_factory=dict)

    def objective(self) -> SloTarget:
        latency, first_byte = _or_infinity(self.latency), _or_infinity(self.first_byte)
        per_token = _or_infinity(self.per_token)
        return SloTarget(latency, self.percentile, self.availability or 0.0, first_byte, per_token)

    def tenant_objectives(self) -> dict[str, SloTarget]:
        found = {}
        for tenant, other in self.tenants.items():
            own = {name: value for name, value in structs.asdict(other).items() if value is not None}
            found[tenant] = structs.replace(self, **own).objective()
        return found


def _or_infinity(seconds: Seconds | None) -> float:
    return INFINITY if seconds is None else float(seconds)


class HistoryConfig(Section, frozen=True):
    """SLO history, kept over restarts for `steelyard report`."""

    __renamed__: ClassVar[dict[str, str]] = {"keep": "retention"}

    enabled: Annotated[bool, described("whether it is kept")] = True
    path: Annotated[str, described("SQLite file; empty: in $STATE_DIRECTORY or $XDG_STATE_HOME/steelyard")] = ""
    retention: Annotated[Seconds, described("time after which it is forgotten")] = Seconds(400 * DAY_SECONDS)


class TracingConfig(Section, frozen=True):
    """Spans of requests, sent to an OpenTelemetry collector. Needs the extra `otel`: `pip install '.[otel]'`."""

    __renamed__: ClassVar = {"sample": "sample_rate", "parent": "parent_based", "service": "service_name"}

    endpoint: Annotated[
        str,
        described(
            "where to, OTLP over HTTP; empty: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT",
            examples=["http://127.0.0.1:4318/v1/traces"],
        ),
    ] = ""
    sample_rate: Annotated[Share, described("share of requests to trace, where no caller decides")] = Share(0.01)
    parent_based: Annotated[bool, described("whether a caller's `traceparent` decides, where it comes with one")] = True
    headers_file: Annotated[str, described("file of headers to send along, a `name: value` a line")] = ""
    service_name: Annotated[str, described("service.name of the spans")] = "steelyard"


class DecisionLogConfig(Section, frozen=True):
    """Why requests went where they went: a line for each, for `steelyard explain` and `steelyard simulate --replay`."""

    __renamed__: ClassVar = {"most": "max_size", "sample": "sample_rate", "candidates": "max_candidates"}

    path: Annotated[str, described("file to append to")]
    sample_rate: Annotated[Share, described("share of requests written down; to replay, 1")] = Share(0.01)
    max_candidates: Annotated[Count, described("most replicas that a line tells of")] = 16
    max_size: Annotated[Size, described("size at which the file is renamed to `path.1` and begun anew")] = Size(1 << 30)
