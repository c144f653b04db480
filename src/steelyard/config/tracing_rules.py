"""The rules of tracing and the decision log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from ..documents import Problem
from .observing import TracingConfig
from .otel_environment import endpoint
from .shape import Config

_REQUIRED_MODULES = ("opentelemetry", "opentelemetry.proto", "google.protobuf")


def tracing_problems(config: Config) -> Iterator[Problem]:
    tracing = config.tracing
    if tracing is not None:
        if what := _endpoint_problem(tracing):
            yield Problem(("tracing", "endpoint"), what)
        if not tracing.service:
            yield Problem(("tracing", "service"), "name the service, for example steelyard")
        if not _is_installed():
            yield Problem(("tracing",), "needs OpenTelemetry: pip install 'steelyard[otel]'")
    if config.decisions is not None and not config.decisions.path:
        yield Problem(("decisions", "path"), "name a file")


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
