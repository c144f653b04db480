"""The rules of tracing and the decision log."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from ..documents import Problem
from .shape import Config

_NEEDED = ("opentelemetry", "opentelemetry.proto", "google.protobuf")


def tracing_problems(config: Config) -> Iterator[Problem]:
    tracing = config.tracing
    if tracing is not None:
        if not _is_url(tracing.endpoint):
            what = f"{tracing.endpoint!r} is not a URL: write for example http://127.0.0.1:4318/v1/traces"
            yield Problem(("tracing", "endpoint"), what)
        if not tracing.service:
            yield Problem(("tracing", "service"), "name the service, for example steelyard")
        if not _is_installed():
            yield Problem(("tracing",), "needs OpenTelemetry: pip install 'steelyard[otel]'")
    if config.decisions is not None and not config.decisions.path:
        yield Problem(("decisions", "path"), "name a file")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        return False


def _is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False
