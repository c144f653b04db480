"""Time zones by name. They come from the machine, or from the package tzdata; UTC needs neither."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from ..documents import did_you_mean


def time_zone(name: str) -> tzinfo | None:
    """None: the machine's own. ValueError says what is wrong."""
    if not name:
        return None
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a folder of zones, a path that leads elsewhere, or no such zone
        known = available_timezones()
    if not known:
        raise ValueError(f"{name!r}: this machine has no time zones but UTC: pip install tzdata")
    hint = did_you_mean(name, known) or ": write for example Europe/Paris"
    raise ValueError(f"no time zone {name!r}{hint}")
