"""Why a model could not be loaded or unloaded."""

from __future__ import annotations

from ...core.errors import SteelyardError


class PlacementError(SteelyardError):
    """A model is not where it should be."""

    reason = "placing"


class NoMemoryError(PlacementError):
    """The memory that was free, or freed, is taken again."""

    reason = "insufficient_memory"


class DrainTimeoutError(PlacementError):
    """A model to be evicted still has requests in flight; they are not cut off."""

    reason = "drain_timeout"


class UnloadError(PlacementError):
    """A server did not unload a model."""

    reason = "unload_failed"


class LoadError(PlacementError):
    """A server did not load a model."""

    reason = "load_failed"


class LoadTimeoutError(PlacementError):
    """A load took longer than `placement.load_timeout`."""

    reason = "load_timeout"
