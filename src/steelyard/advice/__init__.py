"""Advice about a configuration that is valid but unwise: the classic mistakes, and what to do about each.

A configuration in, a list out; the only thing looked at besides is whether programs that it names are there. One small
function a warning; its docstring is its line in docs/configuration.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..config import Config, ModelConfig
from ..config.sections.kinds import ConfigKind
from ..documents import Key
from .gateway import GATEWAY_CHECKS as FRONT
from .health import HEALTH_CHECKS
from .memory import MEMORY_CHECKS
from .models import BALANCING_CHECKS as BALANCING
from .models import is_plain_http
from .scaling import SCALING_CHECKS, STARTING_CHECKS
from .slo import SLO_CHECKS, UNIT_CHECKS

GATEWAY_ADVICE = {**FRONT, **UNIT_CHECKS, **MEMORY_CHECKS, **STARTING_CHECKS}
MODEL_ADVICE = {**BALANCING, **SLO_CHECKS, **HEALTH_CHECKS, **SCALING_CHECKS}

__all__ = ["GATEWAY_ADVICE", "MODEL_ADVICE", "Advice", "Note", "advise", "notes"]


class Advice(NamedTuple):
    code: str  # stable
    key: Key
    what: str
    do: str


class Note(NamedTuple):
    key: Key
    what: str


def advise(config: Config) -> list[Advice]:
    """All warnings: of the gateway first, then model by model."""
    found = [Advice(code, *item) for code, check in GATEWAY_ADVICE.items() for item in check(config)]
    for name, model in config.models.items():
        for code, look in MODEL_ADVICE.items():
            found += [Advice(code, *item) for item in look(("models", name), model)]
        for key, settings in _kinds(("models", name), model):
            found += [Advice(code, *item) for code, method in settings.advice.items() for item in method(settings, key)]
    return found


def _kinds(key: Key, model: ModelConfig) -> Iterator[tuple[Key, ConfigKind]]:
    """The parts of a model that have advice of their own."""
    if model.runtime is not None:
        yield (*key, "runtime"), model.runtime
    for place, source in enumerate(model.discovery):
        yield (*key, "discovery", place), source


def notes(config: Config) -> list[Note]:
    """What is good to know: keys that do nothing in this version, and what a retry needs to be told."""
    found = []
    for name, model in config.models.items():
        key: Key = ("models", name)
        zoned = next((place for place, replica in enumerate(model.replicas) if replica.zone), None)
        if zoned is not None:
            what = "is read, but replicas are not chosen by zone yet in this version"
            found.append(Note((*key, "replicas", zoned, "zone"), what))
        if is_plain_http(model) and model.idempotent is None:
            what = "a POST that a replica may have begun is not sent again: set idempotent: true if it only predicts"
            found.append(Note(key, what))
    return found
