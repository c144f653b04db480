"""Scenarios as YAML files of one or more documents, read and written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ...core.errors import OptionError
from ...documents import DocumentError, Key, Problem, Seconds, YamlDocument, parse, read
from ...units import parse_duration
from ..run import check_policy, check_scaler, check_trace
from ..workload.traces import TraceError
from .dynamics import Autoscale, TrafficShape
from .schema import Arrivals, Batching, Fault, ReplicaGroup, Scenario, Sizes, Workload

_DOCUMENT_MARKER = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_CONTENT = re.compile(r"^[^\S\n]*[^#\s]", re.MULTILINE)  # a line that is neither empty nor a comment
# Shown even at the default.
_ALWAYS_SHOWN: dict[type[msgspec.Struct], tuple[str, ...]] = {
    Scenario: ("name", "requests", "seeds", "loads", "fleet", "workload", "policies"),
    ReplicaGroup: ("count", "speed"),
    Batching: ("slope",),
    Workload: ("sizes", "features"),
    Sizes: ("kind", "mean"),
    Arrivals: ("kind", "cv"),
    Fault: ("kind", "replica", "at"),
    TrafficShape: ("kind",),
    Autoscale: ("scalers", "start", "min", "max", "cold_start"),
}
_UNUSED_BESIDE_OTHERS = ("sizes", "features", "arrivals")


def load_scenarios(path: str | Path) -> list[Scenario]:
    """Errors name file, line and key path."""
    scenarios = [_checked(part, str(path)) for part in _split(read(path))]
    if not scenarios:
        raise DocumentError(f"{path}: the file is empty")
    names = [scenario.name for scenario in scenarios]
    for name in names:
        if names.count(name) > 1:
            raise DocumentError(f"{path}: name: {name!r} is there twice; give each scenario a name of its own")
    return scenarios


def _split(text: str) -> list[str]:
    """The documents of a stream, each behind empty lines so that line numbers hold."""
    starts = [0, *(match.start() for match in _DOCUMENT_MARKER.finditer(text))]
    parts = zip(starts, [*starts[1:], len(text)], strict=True)
    return [
        "\n" * text.count("\n", 0, start) + text[start:end]
        for start, end in parts
        if _CONTENT.search(text[start:end].removeprefix("---"))
    ]


def _checked(text: str, name: str) -> Scenario:
    scenario = parse(text, Scenario, name)
    key: Key = ()
    try:
        for place, policy in enumerate(scenario.policies):
            key = ("policies", place)
            check_policy(scenario, policy)
        for place, scaler in enumerate(scenario.scalers):
            key = ("autoscale", "scalers", place)
            check_scaler(scenario, scaler)
        key = ("workload", "trace", "file")
        check_trace(scenario)
    except (OptionError, TraceError) as problem:
        raise DocumentError.of([YamlDocument(text, name).diagnostic(Problem(key, str(problem)))]) from None
    return scenario


def to_yaml(scenario: Scenario, *, full: bool = False) -> str:
    """Reads back as the same scenario; `full`: with every default."""
    text: str = yaml.safe_dump(
        _plain(scenario, full=full), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110
    )
    return text


def _plain(value: Any, *, full: bool) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            field.name: _plain(getattr(value, field.name), full=full)
            for field in msgspec.structs.fields(value)
            if full or _worth_showing(value, field)
        }
    if isinstance(value, Seconds):
        return _duration(value)
    if isinstance(value, tuple):
        return [_plain(item, full=full) for item in value]
    return value


def _worth_showing(value: msgspec.Struct, field: msgspec.structs.FieldInfo) -> bool:
    other_jobs = isinstance(value, Workload) and (value.trace is not None or value.conversations is not None)
    if other_jobs and field.name in _UNUSED_BESIDE_OTHERS:
        return False
    if field.name in _ALWAYS_SHOWN.get(type(value), ()):
        return True
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return bool(getattr(value, field.name) != default)


def _duration(value: float) -> str | float:
    """As people write it, if that reads back as exactly this number."""
    for unit, scale in (("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3)):
        amount = value / scale
        text = f"{amount:.3f}".rstrip("0").rstrip(".") + unit
        if amount >= 1 and ("." not in text or unit in ("s", "ms")) and parse_duration(text) == value:
            return text
    return float(value)
