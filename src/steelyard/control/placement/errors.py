"""Why a model could not be loaded, or not be unloaded. Each says in one sentence what was seen."""

from __future__ import annotations

from ...core.errors import SteelyardError


class PlacementError(SteelyardError):
    """A model is not where it should be."""

    reason = "placing"


class NoMemoryError(PlacementError):
    """The room that was there, or was made, is gone again."""

    reason = "no_room"


class DrainTimeoutError(PlacementError):
    """What was to make room still has requests in flight, and they are not cut off."""

    reason = "still_runs"


class UnloadError(PlacementError):
    """A server did not unload a model."""

    reason = "unload_failed"


class LoadError(PlacementError):
    """A server did not load a model."""

    reason = "load_failed"


class LoadTimeoutError(PlacementError):
    """A load took longer than `placement.timeout`."""

    reason = "load_timeout"
