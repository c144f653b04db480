"""A scaler as it is named in a scenario: `work`, `kpa@target=0.5`, `fixed@8`, `package.module:Class`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import yaml

from ...core.errors import OptionError
from ...core.request import INFINITY
from ...core.scalers.base import Recommendation, ScalingMetrics
from ...core.scaling.decider import ScalingDecider, ScalingDecision, ScalingOptions
from .dynamics import Autoscale

FIXED_SCALER = "fixed"


class ScalerDriver(Protocol):
    def decide(self, seen: ScalingMetrics, *, planned: int = 0) -> ScalingDecision: ...


class FixedScaling:
    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def decide(self, seen: ScalingMetrics, *, planned: int = 0) -> ScalingDecision:
        count = self._replicas
        return ScalingDecision(count, "fixed", Recommendation(count, "fixed"), count, INFINITY)


def split_scaler(text: str) -> tuple[str, dict[str, Any]]:
    """`kpa@target=0.5@window=30` is kpa with these options."""
    name, *parts = text.split("@")
    if name == FIXED_SCALER:
        if len(parts) != 1 or not parts[0].isdecimal():
            raise OptionError(f"scaler {text!r}: after fixed@ comes the number of replicas")
        return name, {"replicas": int(parts[0])}
    options: dict[str, Any] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not key or not equals or not value:
            raise OptionError(f"scaler {text!r}: after @ comes an option and its value, such as {name}@target=0.7")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise OptionError(f"scaler {text!r}: {value!r} is no value") from None
    return name, options


def base_scaler(scaler: str) -> str:
    """Without its options."""
    return scaler.partition("@")[0]


def make_scaler(text: str, autoscale: Autoscale) -> ScalerDriver:
    name, options = split_scaler(text)
    if name == FIXED_SCALER:
        return FixedScaling(options["replicas"])
    given: Mapping[str, Any] = {**autoscale.options.get(name, {}), **options}
    return ScalingDecider(
        ScalingOptions(
            scaler=name,
            scaler_options=given or None,
            min_replicas=autoscale.min,
            max_replicas=autoscale.max,
            idle_seconds=float(autoscale.scale_to_zero_after),
        )
    )


def initial_replicas(text: str, autoscale: Autoscale) -> int:
    name, options = split_scaler(text)
    return int(options["replicas"]) if name == FIXED_SCALER else autoscale.start
