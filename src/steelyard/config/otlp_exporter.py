"""Where spans go: by the configuration, or else by OpenTelemetry's environment variables.

https://opentelemetry.io/docs/specs/otel/protocol/exporter: a variable for traces wins over the one for all signals,
and an empty one counts as unset. `v1/traces` is appended to `…_ENDPOINT`, not to `…_TRACES_ENDPOINT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from .secret_files import read_headers
from .sections.observability import TracingConfig

VARIABLE_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
SUPPORTED_PROTOCOL: Final = "http/protobuf"
DEFAULT_TIMEOUT_SECONDS: Final = 5.0


class Exporter(NamedTuple):
    endpoint: str  # empty: none is given
    headers: dict[str, str]
    timeout: float  # seconds


def exporter(settings: TracingConfig, environment: Mapping[str, str]) -> Exporter:
    """ValueError: a variable or the file of headers is wrong. OSError: the file cannot be read."""
    headers = _headers(environment)
    if settings.headers_file:
        headers |= read_headers(settings.headers_file)
    return Exporter(endpoint(settings, environment), headers, _timeout(environment))


def endpoint(settings: TracingConfig, environment: Mapping[str, str]) -> str:
    if settings.endpoint:
        return settings.endpoint
    name, protocol = _variable(environment, "PROTOCOL")
    if protocol and protocol != SUPPORTED_PROTOCOL:
        raise ValueError(f"{name} is {protocol!r}: spans are sent as {SUPPORTED_PROTOCOL} alone")
    name, url = _variable(environment, "ENDPOINT")
    return url if not url or "TRACES" in name else f"{url.rstrip('/')}/v1/traces"


def _variable(environment: Mapping[str, str], what: str) -> tuple[str, str]:
    """The variable in force and its value, or two empty texts."""
    for name in (f"{VARIABLE_PREFIX}TRACES_{what}", f"{VARIABLE_PREFIX}{what}"):
        if value := environment.get(name, "").strip():
            return name, value
    return "", ""


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    """`key1=value1,key2=value2`, as W3C Baggage has it: values are percent-encoded."""
    name, value = _variable(environment, "HEADERS")
    found = {}
    for pair in filter(None, (part.strip() for part in value.split(","))):
        key, equals, said = pair.partition("=")
        text = unquote(said.strip())
        if not equals or not key.strip().isascii() or not text.isprintable() or not text.isascii():
            raise ValueError(f"{name}: write name=value, and a comma between two")  # without it: it may be a secret
        found[key.strip().lower()] = text
    return found


def _timeout(environment: Mapping[str, str]) -> float:
    name, value = _variable(environment, "TIMEOUT")
    if not value:
        return DEFAULT_TIMEOUT_SECONDS
    if not value.isdecimal() or not int(value):
        raise ValueError(f"{name} is {value!r}: a whole number of milliseconds is expected")
    return int(value) / 1000.0
