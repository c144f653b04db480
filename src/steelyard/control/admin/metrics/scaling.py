"""Autoscaling: how many replicas models have and should have."""

from __future__ import annotations

from collections.abc import Iterator

from ...observability.views import ScalingView
from .exposition import Family, Sample, attribute_families, labels

_ALL = (
    ("steelyard_scaling_desired_replicas", "gauge", "replicas it should have", "desired"),
    ("steelyard_scaling_min_replicas", "gauge", "replicas it has at the least", "min_replicas"),
    ("steelyard_scaling_max_replicas", "gauge", "replicas it may have at the most", "max_replicas"),
    ("steelyard_scaling_starting_replicas", "gauge", "replicas that were started and are not ready yet", "starting"),
    ("steelyard_scaling_terminating_replicas", "gauge", "replicas that drain or are being stopped", "terminating"),
    ("steelyard_scaling_cold_start_seconds", "gauge", "from the start of a replica to its readiness", "cold_start"),
    ("steelyard_scaling_replica_seconds_total", "counter", "seconds that replicas of ours have run", "replica_seconds"),
    ("steelyard_scaling_cost_total", "counter", "what these cost, where there is a price", "cost"),
    ("steelyard_scaling_starts_total", "counter", "replicas that were started", "starts"),
    ("steelyard_scaling_stops_total", "counter", "replicas that were stopped", "stops"),
    (
        "steelyard_scaling_crashes_total",
        "counter",
        "starts that failed and replicas that ended by themselves",
        "crashes",
    ),
)
_WITH_SCALER = (
    (
        "steelyard_scaling_forecast_load",
        "gauge",
        "seconds of work per second expected one cold start ahead",
        "forecast_load",
    ),
    ("steelyard_scaling_burn_rate", "gauge", "times as fast as allowed that the error budget is used", "burn_rate"),
    ("steelyard_scaling_panic_mode", "gauge", "1: a sudden peak, what came lately decides alone", "panic_mode"),
)


def scaling_families(scaling: tuple[ScalingView, ...]) -> Iterator[Family]:
    models = [(labels(model=view.model), view) for view in scaling]
    scaled = [(of, view) for of, view in models if view.scaler]
    yield from attribute_families(_ALL, models)
    yield from attribute_families(_WITH_SCALER, scaled)
    offered = [
        Sample(f'{of},window="{window}"', work)
        for of, view in scaled
        for window, work in (("long", view.offered_load), ("short", view.recent_load))
    ]
    yield Family("steelyard_scaling_offered_load", "gauge", "seconds of work that come per second", offered)
    looping = [Sample(of, view.start_failure is not None and view.start_failure.crash_looping) for of, view in models]
    yield Family("steelyard_scaling_crash_looping", "gauge", "1: its replicas fail again and again", looping)
