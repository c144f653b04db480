"""The table of scalers. A new one is one file, one line here, one row in docs/autoscaling.md; the suite finds it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..errors import OptionError
from ..plugins import find_class
from .base import Recommendation, Scaler, ScalingMetrics

SCALERS: dict[str, str] = {
    "work": "steelyard.core.scalers.work:WorkScaler",
    "kpa": "steelyard.core.scalers.kpa:KnativeScaler",
    "hpa": "steelyard.core.scalers.hpa:KubernetesScaler",
}

__all__ = ["SCALERS", "Recommendation", "Scaler", "ScalingMetrics", "find_scaler", "make_scaler", "scaler_options"]


def find_scaler(name: str) -> type[Scaler]:
    """The class behind a name of the table, or behind `package.module:Class`."""
    return find_class("scaler", name, SCALERS, Scaler, "steelyard.core.scalers.Scaler")


def scaler_options(kind: type[Scaler]) -> dict[str, Any]:
    """The options a scaler takes, with their defaults."""
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def make_scaler(name: str, options: Mapping[str, Any]) -> Scaler:
    kind = find_scaler(name)
    known = scaler_options(kind)
    for option in options:
        if option not in known:
            takes = ", ".join(known) or "no options"
            raise OptionError(f"scaler {name!r}: unknown option {option!r} (it takes {takes})")
    try:
        return kind(**options)
    except OptionError as problem:
        raise OptionError(f"scaler {name!r}: {problem}") from None
    except TypeError as problem:
        raise OptionError(f"scaler {name!r}: {problem}") from problem
