"""Advice about a configuration that is valid but unwise: the classic mistakes, and what to do about each.

Pure, but for a look at whether the programs that a configuration names are there. Each warning is one function, and its
docstring is its line in docs/configuration.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import NamedTuple

from ..config import Config, ModelConfig
from ..config.sections.kinds import ConfigKind
from ..documents import Key
from . import gateway, health, memory, models, scaling, slo
from .models import Findings, is_plain_http

__all__ = ["GATEWAY_ADVICE", "MODEL_ADVICE", "Advice", "Note", "advise", "notes"]


class Advice(NamedTuple):
    code: str  # stable
    key: Key
    what: str
    do: str


class Note(NamedTuple):
    key: Key
    what: str


def _checks(parameter: str, *modules: ModuleType) -> dict[str, Callable[..., Findings]]:
    """The functions of these modules that return Findings, by code: `no_tls` is `no-tls`."""
    found = (one for module in modules for one in vars(module).values() if isinstance(one, FunctionType))
    checks = (one for one in found if one.__annotations__.get("return") == "Findings")
    return {one.__name__.replace("_", "-"): one for one in checks if parameter in one.__annotations__}


GATEWAY_ADVICE = _checks("config", gateway, slo, memory, scaling)
MODEL_ADVICE = _checks("key", models, slo, health, scaling)


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
    if model.runtime is not None:
        yield (*key, "runtime"), model.runtime
    for place, source in enumerate(model.discovery):
        yield (*key, "discovery", place), source


def notes(config: Config) -> list[Note]:
    """Keys that do nothing in this version, and what a retry needs to know."""
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
