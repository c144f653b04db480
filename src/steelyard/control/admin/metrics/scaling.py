"""How many replicas models have and should have, in numbers."""

from __future__ import annotations

from collections.abc import Iterator

from ...observability.views import ScalingView
from .exposition import Family, Sample, labels

_PREFIX = "steelyard_scaling_"

# Name, meaning, and which number of a ScalingView it is.
_GAUGES = (
    ("desired_replicas", "replicas it should have", "desired"),
    ("min_replicas", "replicas it has at the least", "min_replicas"),
    ("max_replicas", "replicas it may have at the most", "max_replicas"),
    ("starting_replicas", "replicas that were started and are not ready yet", "starting"),
    ("terminating_replicas", "replicas that drain or are being stopped", "terminating"),
    ("cold_start_seconds", "from the start of a replica to its readiness", "cold_start"),
)
_SCALER_GAUGES = (  # by a scaler
    ("forecast_load", "seconds of work per second expected one cold start ahead", "forecast_load"),
    ("burn_rate", "times as fast as allowed that the error budget is used", "burn_rate"),
    ("panic_mode", "1: a sudden peak, what came lately decides alone", "panic_mode"),
)
_COUNTERS = (
    ("replica_seconds_total", "seconds that replicas of ours have run", "replica_seconds"),
    ("cost_total", "what these cost, where there is a price", "cost"),
    ("starts_total", "replicas that were started", "starts"),
    ("stops_total", "replicas that were stopped", "stops"),
    ("crashes_total", "starts that failed and replicas that ended by themselves", "crashes"),
)


def scaling_families(scaling: tuple[ScalingView, ...]) -> Iterator[Family]:
    for name, meaning, field in _GAUGES:
        yield _family(name, "gauge", meaning, [_sample(view, field) for view in scaling])
    scaled = [view for view in scaling if view.scaler]
    offered = [sample for view in scaled for sample in _offered(view)]
    yield _family("offered_load", "gauge", "seconds of work that come per second", offered)
    for name, meaning, field in _SCALER_GAUGES:
        yield _family(name, "gauge", meaning, [_sample(view, field) for view in scaled])
    for name, meaning, field in _COUNTERS:
        yield _family(name, "counter", meaning, [_sample(view, field) for view in scaling])
    looping = [Sample(labels(model=view.model), int(_loops(view))) for view in scaling]
    yield _family("crash_looping", "gauge", "1: its replicas fail again and again", looping)


def _family(name: str, kind: str, meaning: str, samples: list[Sample]) -> Family:
    return Family(f"{_PREFIX}{name}", kind, meaning, samples)


def _sample(view: ScalingView, field: str) -> Sample:
    value = getattr(view, field)
    return Sample(labels(model=view.model), None if value is None else float(value))


def _offered(view: ScalingView) -> Iterator[Sample]:
    for window, work in (("long", view.offered_load), ("short", view.recent_load)):
        yield Sample(labels(model=view.model, window=window), work)


def _loops(view: ScalingView) -> bool:
    return view.start_failure is not None and view.start_failure.crash_looping
