"""Why a model could not be loaded, or not be unloaded. Each says in one sentence what was seen."""

from __future__ import annotations

from ...core.errors import SteelyardError


class PlacingError(SteelyardError):
    """A model is not where it should be."""

    reason = "placing"


class NoRoomError(PlacingError):
    """The room that was there, or was made, is gone again."""

    reason = "no_room"


class StillRunsError(PlacingError):
    """What was to make room still has requests in flight, and they are not cut off."""

    reason = "still_runs"


class UnloadError(PlacingError):
    """A server did not unload a model."""

    reason = "unload_failed"


class LoadError(PlacingError):
    """A server did not load a model."""

    reason = "load_failed"


class LoadTimeoutError(PlacingError):
    """A load took longer than `placement.timeout`."""

    reason = "load_timeout"
