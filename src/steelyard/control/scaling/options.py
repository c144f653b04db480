"""What the configuration says of a model's scaling, for core.scaling."""

from __future__ import annotations

from ...config import AutoscaleConfig, ModelConfig
from ...core.request import INFINITY
from ...core.scaling import ScalingOptions

DEFAULT_MAX_REPLICAS = 100  # replicas, where no max is given: a wild estimate must not start thousands
FIXED, ACT, RECOMMEND = "fixed", "act", "recommend"


def scaling_mode(model: ModelConfig) -> str:
    """Without a runtime nobody can do what is decided."""
    if model.autoscale is None:
        return FIXED
    return ACT if model.runtime is not None and model.autoscale.mode == "act" else RECOMMEND


def scaling_options(scale: AutoscaleConfig) -> ScalingOptions:
    return ScalingOptions(
        scaler=scale.scaler,
        scaler_options=scale.scaler_options,
        min_replicas=scale.min,
        max_replicas=float(max(DEFAULT_MAX_REPLICAS, scale.min) if scale.max is None else scale.max),
        idle_seconds=float(scale.idle),
        max_added_per_minute=_or_unlimited(scale.up),
        max_removed_per_minute=_or_unlimited(scale.down),
    )


def _or_unlimited(number: int | None) -> float:
    return INFINITY if number is None else float(number)
