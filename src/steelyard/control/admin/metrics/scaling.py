"""Autoscaling: how many replicas models have and should have."""

from __future__ import annotations

from collections.abc import Iterator

from ...observability.views import ScalingView
from .exposition import Family, Sample, attribute_families, labels

_ALL = (
    ("steelyard_scaling_desired_replicas", "gauge", "desired replicas", "desired"),
    ("steelyard_scaling_min_replicas", "gauge", "lower bound of its replicas", "min_replicas"),
    ("steelyard_scaling_max_replicas", "gauge", "upper bound of its replicas", "max_replicas"),
    ("steelyard_scaling_starting_replicas", "gauge", "started replicas that are not ready yet", "starting"),
    ("steelyard_scaling_terminating_replicas", "gauge", "draining or stopping replicas", "terminating"),
    ("steelyard_scaling_cold_start_seconds", "gauge", "from the start of a replica to its readiness", "cold_start"),
    ("steelyard_scaling_replica_seconds_total", "counter", "total run time of started replicas", "replica_seconds"),
    ("steelyard_scaling_cost_total", "counter", "cost of that run time, if priced", "cost"),
    ("steelyard_scaling_starts_total", "counter", "replicas started", "starts"),
    ("steelyard_scaling_stops_total", "counter", "replicas stopped", "stops"),
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
    ("steelyard_scaling_burn_rate", "gauge", "use of the error budget; 1: as fast as allowed", "burn_rate"),
    ("steelyard_scaling_panic_mode", "gauge", "1: sudden peak, only recent load counts", "panic_mode"),
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
    yield Family("steelyard_scaling_offered_load", "gauge", "seconds of work that arrive per second", offered)
    looping = [Sample(of, view.start_failure is not None and view.start_failure.crash_looping) for of, view in models]
    yield Family("steelyard_scaling_crash_looping", "gauge", "1: its replicas crash repeatedly", looping)
