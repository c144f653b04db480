"""Advice about a configuration that is valid but unwise: the classic mistakes, and what to do about each.

A configuration in, a list out; the only thing looked at besides is whether programs that it names are there. One small
function a warning; its docstring is its line in docs/configuration.md.
"""

from __future__ import annotations

from typing import NamedTuple

from ..config import Config
from ..documents import Key
from .gateway import GATEWAY as FRONT
from .health import HEALTH
from .memory import MEMORY
from .models import MODELS as BALANCING
from .models import is_plain
from .promises import PROMISES, UNITS
from .scaling import SCALING, STARTING

GATEWAY = {**FRONT, **UNITS, **MEMORY, **STARTING}
MODELS = {**BALANCING, **PROMISES, **HEALTH, **SCALING}

__all__ = ["GATEWAY", "MODELS", "Advice", "Note", "advise", "notes"]


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
    found = [Advice(code, *item) for code, check in GATEWAY.items() for item in check(config)]
    for name, model in config.models.items():
        for code, look in MODELS.items():
            found += [Advice(code, *item) for item in look(("models", name), model)]
    return found


def notes(config: Config) -> list[Note]:
    """What is good to know: keys that do nothing in this version, and what a retry needs to be told."""
    found = []
    for name, model in config.models.items():
        key: Key = ("models", name)
        zoned = next((place for place, replica in enumerate(model.replicas) if replica.zone), None)
        if zoned is not None:
            what = "is read, but replicas are not chosen by zone yet in this version"
            found.append(Note((*key, "replicas", zoned, "zone"), what))
        if is_plain(model) and model.idempotent is None:
            what = "a POST that a replica may have begun is not sent again: set idempotent: true if it only predicts"
            found.append(Note(key, what))
    return found
