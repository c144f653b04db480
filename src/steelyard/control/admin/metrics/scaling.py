"""Autoscaling: how many replicas models have and should have."""

from __future__ import annotations

from collections.abc import Iterator

from ...observability.views import ScalingView
from .exposition import Family, Sample, attribute_families, labels

_PREFIX = "steelyard_scaling"
_ALL = (
    ("desired_replicas", "gauge", "replicas it should have", "desired"),
    ("min_replicas", "gauge", "replicas it has at the least", "min_replicas"),
    ("max_replicas", "gauge", "replicas it may have at the most", "max_replicas"),
    ("starting_replicas", "gauge", "replicas that were started and are not ready yet", "starting"),
    ("terminating_replicas", "gauge", "replicas that drain or are being stopped", "terminating"),
    ("cold_start_seconds", "gauge", "from the start of a replica to its readiness", "cold_start"),
    ("replica_seconds_total", "counter", "seconds that replicas of ours have run", "replica_seconds"),
    ("cost_total", "counter", "what these cost, where there is a price", "cost"),
    ("starts_total", "counter", "replicas that were started", "starts"),
    ("stops_total", "counter", "replicas that were stopped", "stops"),
    ("crashes_total", "counter", "starts that failed and replicas that ended by themselves", "crashes"),
)
_WITH_SCALER = (
    ("forecast_load", "gauge", "seconds of work per second expected one cold start ahead", "forecast_load"),
    ("burn_rate", "gauge", "times as fast as allowed that the error budget is used", "burn_rate"),
    ("panic_mode", "gauge", "1: a sudden peak, what came lately decides alone", "panic_mode"),
)


def scaling_families(scaling: tuple[ScalingView, ...]) -> Iterator[Family]:
    models = [(labels(model=view.model), view) for view in scaling]
    scaled = [(of, view) for of, view in models if view.scaler]
    yield from attribute_families(_PREFIX, _ALL, models)
    yield from attribute_families(_PREFIX, _WITH_SCALER, scaled)
    offered = [
        Sample(f'{of},window="{window}"', work)
        for of, view in scaled
        for window, work in (("long", view.offered_load), ("short", view.recent_load))
    ]
    yield Family(f"{_PREFIX}_offered_load", "gauge", "seconds of work that come per second", offered)
    looping = [Sample(of, view.start_failure is not None and view.start_failure.crash_looping) for of, view in models]
    yield Family(f"{_PREFIX}_crash_looping", "gauge", "1: its replicas fail again and again", looping)
