"""How many replicas Steelyard starts."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo, available_timezones

from msgspec import field

from ...core.scalers import SCALERS
from ...documents import Seconds, did_you_mean
from .base import CLASS_PATH_SCHEMA, Count, Natural, NotNegative, Section, described


class SchedulePeriod(Section, frozen=True):
    """A time of the week in which more replicas are needed than otherwise."""

    start: Annotated[str, described("`08:00`; the replicas are ready by then")]
    end: Annotated[str, described("`18:00`; before `start`: the next day")]
    min: Annotated[Natural, described("replicas at the least in this time")]
    days: Annotated[str, described("`mon-fri`, `sat,sun`; empty: every day")] = ""


class AutoscaleConfig(Section, frozen=True):
    """How many replicas, by what is asked of them."""

    __renamed__: ClassVar[dict[str, str]] = {
        "idle": "scale_to_zero_after",
        "up": "max_added_per_minute",
        "down": "max_removed_per_minute",
        "cost": "hourly_cost",
    }

    mode: Annotated[Literal["act", "recommend"], described("`recommend`: only say what would be done")] = "act"
    min: Annotated[Natural, described("fewest replicas; 0: none without requests")] = 1
    max: Annotated[Count | None, described("replicas at the most; without it 100, or `min` if that is more")] = None
    scaler: Annotated[
        str,
        described(
            "`work` (ours), `kpa` (Knative's), `hpa` (Kubernetes'), or `package.module:Class`",
            anyOf=[{"enum": list(SCALERS)}, CLASS_PATH_SCHEMA],
        ),
    ] = "work"
    scaler_options: Annotated[dict[str, Any], described("options of the scaler")] = field(default_factory=dict)
    scale_to_zero_after: Annotated[Seconds, described("with `min: 0`, idle time until the last stop")] = Seconds(300)
    max_added_per_minute: Annotated[Count | None, described("most replicas added within a minute")] = None
    max_removed_per_minute: Annotated[Count | None, described("most replicas taken away within a minute")] = None
    cold_start: Annotated[Seconds, described("from start to ready, until measured")] = Seconds(10)
    schedule: Annotated[tuple[SchedulePeriod, ...], described("known peaks")] = ()
    timezone: Annotated[str, described("of `schedule`, such as `Europe/Paris`; empty: the machine's own")] = ""
    hourly_cost: Annotated[NotNegative, described("price of a replica for an hour, in whatever currency")] = 0.0


def time_zone(name: str) -> tzinfo | None:
    """From the machine or the package tzdata; UTC needs neither. None: the machine's own. ValueError: no such zone."""
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
