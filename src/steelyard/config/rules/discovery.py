"""The rules of where replicas are found that hold for every kind of source; each kind adds its own."""

from __future__ import annotations

from collections.abc import Iterator

from ...documents import Key, Problem
from ..sections.root import ModelConfig
from .health import MIN_INTERVAL_SECONDS


def discovery_problems(key: Key, model: ModelConfig) -> Iterator[Problem]:
    for place, source in enumerate(model.discovery):
        here: Key = (*key, "discovery", place)
        yield from source.problems(here)
        if source.interval < MIN_INTERVAL_SECONDS:
            yield Problem((*here, "interval"), "must be at least 10ms")
        first = model.discovery.index(source)
        if first != place:
            yield Problem(here, f"is the same as discovery[{first}]")
