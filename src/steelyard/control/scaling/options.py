"""What the configuration says of a model's scaling, for core.scaling."""

from __future__ import annotations

from ...config import Autoscale, ModelConfig
from ...core.request import INFINITY
from ...core.scaling import ScalingOptions

MOST = 100  # replicas, where no max is given: a wild estimate must not start thousands
FIXED, ACT, RECOMMEND = "fixed", "act", "recommend"


def mode(model: ModelConfig) -> str:
    """Without a runtime nobody can do what is decided."""
    if model.autoscale is None:
        return FIXED
    return ACT if model.runtime is not None and model.autoscale.mode == "act" else RECOMMEND


def options(scale: Autoscale) -> ScalingOptions:
    return ScalingOptions(
        scaler=scale.scaler,
        scaler_options=scale.scaler_options,
        least=scale.min,
        most=float(max(MOST, scale.min) if scale.max is None else scale.max),
        idle=float(scale.idle),
        up=_or_more(scale.up),
        down=_or_more(scale.down),
    )


def _or_more(number: int | None) -> float:
    return INFINITY if number is None else float(number)
