"""The table of scalers. A new one is one file, one line here, one row in docs/autoscaling.md; the suite finds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..plugins import find_class, make_plugin
from ..plugins import plugin_options as scaler_options
from .base import Recommendation, Scaler, ScalingMetrics

SCALERS: dict[str, str] = {
    "work": "steelyard.core.scalers.work:WorkScaler",
    "kpa": "steelyard.core.scalers.kpa:KnativeScaler",
    "hpa": "steelyard.core.scalers.hpa:KubernetesScaler",
}

__all__ = ["SCALERS", "Recommendation", "Scaler", "ScalingMetrics", "find_scaler", "make_scaler", "scaler_options"]


def find_scaler(name: str) -> type[Scaler]:
    """The class behind a name of the table, or behind `package.module:Class`."""
    return find_class("scaler", name, SCALERS, Scaler, "steelyard.core.scalers.Scaler", ("recommend",))


def make_scaler(name: str, options: Mapping[str, Any]) -> Scaler:
    return make_plugin("scaler", name, find_scaler(name), options)
