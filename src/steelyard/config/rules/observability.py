"""The rules of tracing, the decision log and SLOs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from ...core.errors import OptionError
from ...documents import Key, Problem
from ...protocols import find_dialect
from ..formats import MAX_NAME_CHARS, zero_problems
from ..otlp_exporter import endpoint
from ..sections.observability import SloConfig, TracingConfig
from ..sections.root import Config

_REQUIRED_MODULES = ("opentelemetry", "opentelemetry.proto", "google.protobuf")


def tracing_problems(config: Config) -> Iterator[Problem]:
    tracing = config.tracing
    if tracing is not None:
        if what := _endpoint_problem(tracing):
            yield Problem(("tracing", "endpoint"), what)
        if not tracing.service_name:
            yield Problem(("tracing", "service"), "name the service, for example steelyard")
        if not _is_installed():
            yield Problem(("tracing",), "needs OpenTelemetry: pip install opentelemetry-proto")
    if config.decision_log is not None and not config.decision_log.path:
        yield Problem(("decision_log", "path"), "name a file")


def _endpoint_problem(tracing: TracingConfig) -> str:
    try:
        found = endpoint(tracing, os.environ)
    except ValueError as problem:
        return str(problem)
    if not found:
        return "name the collector, for example http://127.0.0.1:4318/v1/traces, or set OTEL_EXPORTER_OTLP_ENDPOINT"
    return "" if _is_url(found) else f"{found!r} is not a URL: write for example http://127.0.0.1:4318/v1/traces"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        return False


def _is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _REQUIRED_MODULES)
    except ModuleNotFoundError:
        return False


_MIN_PERIOD_SECONDS = 3600.0  # seconds of an error budget
_OVERFLOW_TENANT = "*"  # counts the tenants beyond the limit


def slo_problems(config: Config) -> Iterator[Problem]:
    tokens = any(_counts_tokens(model.dialect) for model in config.models.values())
    for name, model in config.models.items():
        if model.slo is not None:
            key: Key = ("models", name, "slo")
            yield from _slo(key, model.slo, named=bool(config.tenant_header or config.tenants))
            promised = [model.slo.per_token, *(own.per_token for own in model.slo.tenants.values())]
            if not tokens and any(seconds is not None for seconds in promised):
                what = "counts no tokens, so no stream would be late: leave it out, or use another, such as openai"
                yield Problem((*key, "per_token"), f"dialect {model.dialect!r} {what}")
    yield from zero_problems(("history",), config.history, "retention")


def _counts_tokens(dialect: str) -> bool:
    try:
        return not dialect or bool(find_dialect(dialect).prompt_kinds)
    except OptionError:
        return True  # another check says what is wrong with it


def _slo(key: Key, slo: SloConfig, *, named: bool) -> Iterator[Problem]:
    if slo.period < _MIN_PERIOD_SECONDS:
        yield Problem((*key, "period"), "must be at least 1h")
    if slo.tenants and not named:
        yield Problem((*key, "tenants"), "no `tenant_header` tells the tenant of a request: set it, such as x-tenant")
    for tenant, own in slo.tenants.items():
        place = (*key, "tenants", tenant)
        if not tenant or tenant == _OVERFLOW_TENANT or len(tenant) > MAX_NAME_CHARS:
            what = f"the name of a tenant has 1 to {MAX_NAME_CHARS} characters, and is not {_OVERFLOW_TENANT}"
            yield Problem(place, what)
        yield from zero_problems(place, own, "latency", "first_byte", "per_token")
        if own.latency is own.percentile is own.availability is own.first_byte is own.per_token is None:
            what = "sets no target of its own: give latency, first_byte, per_token, percentile or availability"
            yield Problem(place, what)
