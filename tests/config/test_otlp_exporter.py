"""OpenTelemetry's environment variables stand in for what the configuration does not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steelyard.config import TracingConfig, parse_config
from steelyard.config.otlp_exporter import DEFAULT_TIMEOUT_SECONDS, exporter
from steelyard.documents import DocumentError

BASE = "OTEL_EXPORTER_OTLP_"
MODELS = "models: {m: {replicas: [{url: 'http://a:1'}]}}\n"


def made(environment: dict[str, str], **settings: Any) -> tuple[str, dict[str, str], float]:
    return exporter(TracingConfig(**settings), {BASE + name: value for name, value in environment.items()})


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({"ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        ({"ENDPOINT": "http://c:4318/otlp/"}, "http://c:4318/otlp/v1/traces"),
        ({"TRACES_ENDPOINT": "http://t:1/here", "ENDPOINT": "http://c:4318"}, "http://t:1/here"),
        ({"TRACES_ENDPOINT": "", "ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),  # empty is unset
        ({"ENDPOINT": "http://c:4318", "PROTOCOL": "http/protobuf"}, "http://c:4318/v1/traces"),
        ({}, ""),
    ],
)
def test_where_spans_go(environment: dict[str, str], endpoint: str) -> None:
    assert made(environment)[0] == endpoint


def test_the_configuration_wins(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("authorization: Bearer of-the-file\n")
    environment = {"ENDPOINT": "http://c:1", "PROTOCOL": "grpc", "HEADERS": "authorization=theirs,x-tenant=a%20b"}
    endpoint, headers, timeout = made(environment, endpoint="http://mine:1/v1/traces", headers_file=str(file))
    assert endpoint == "http://mine:1/v1/traces"
    assert headers == {"authorization": "Bearer of-the-file", "x-tenant": "a b"}
    assert timeout == DEFAULT_TIMEOUT_SECONDS


def test_headers_and_timeout() -> None:
    environment = {
        "HEADERS": "a=1",
        "TRACES_HEADERS": " B = two , c=3%3D3",
        "TIMEOUT": "9000",
        "TRACES_TIMEOUT": "1500",
    }
    assert made(environment)[1:] == ({"b": "two", "c": "3=3"}, 1.5)


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"ENDPOINT": "http://c:1", "PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'"),
        ({"HEADERS": "secret-without-a-name"}, "OTEL_EXPORTER_OTLP_HEADERS: write name=value"),
        ({"HEADERS": "a=b%0d%0ax: y"}, "OTEL_EXPORTER_OTLP_HEADERS: write name=value"),
        ({"TIMEOUT": "soon"}, "OTEL_EXPORTER_OTLP_TIMEOUT is 'soon'"),
    ],
)
def test_what_makes_no_sense_is_told_without_its_secrets(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as found:
        made(environment)
    assert "secret" not in str(found.value)


def test_a_configuration_that_names_no_collector_needs_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "PROTOCOL", "TRACES_PROTOCOL"):
        monkeypatch.delenv(BASE + name, raising=False)
    with pytest.raises(DocumentError, match="or set OTEL_EXPORTER_OTLP_ENDPOINT"):
        parse_config(MODELS + "tracing: {}\n")
    monkeypatch.setenv(BASE + "ENDPOINT", "http://c:4318")
    assert parse_config(MODELS + "tracing: {}\n").tracing is not None
    monkeypatch.setenv(BASE + "PROTOCOL", "grpc")
    with pytest.raises(DocumentError, match="http/protobuf"):
        parse_config(MODELS + "tracing: {}\n")
    assert parse_config(MODELS).tracing is None  # a variable alone sends nothing
