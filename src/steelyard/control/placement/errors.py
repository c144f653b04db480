"""Why a model could not be loaded or unloaded."""

from __future__ import annotations

from ...core.errors import SteelyardError


class PlacementError(SteelyardError):
    """A model is not where it should be."""

    reason = "placing"


class NoMemoryError(PlacementError):  # what was free, or freed, is taken again
    reason = "insufficient_memory"


class DrainTimeoutError(PlacementError):  # requests in flight are not cut off
    reason = "drain_timeout"


class UnloadError(PlacementError):
    reason = "unload_failed"


class LoadError(PlacementError):
    reason = "load_failed"


class LoadTimeoutError(PlacementError):
    reason = "load_timeout"
