"""How many replicas a model should have: a scaler's recommendation within bounds, and the reason in words.

In this order: the scaler's count; zero after `idle_seconds` without a request where the minimum is 0; at most
`max_added_per_minute` and `max_removed_per_minute` changes a minute; at least what a schedule plans; min and max.

Source: docs/decisions/0017-scaling-by-work.md. Limits: decides a number; scale_down.py decides which replicas go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..plugins import require
from ..request import INFINITY
from ..scalers import make_scaler
from ..scalers.base import Recommendation, ScalingMetrics
from ..statistics.sliding_windows import SlidingMaximum

STEP_WINDOW_SECONDS = 60.0


@dataclass(frozen=True)
class ScalingOptions:
    scaler: str = "work"  # a name of core.scalers.SCALERS, or package.module:Class
    scaler_options: Mapping[str, Any] | None = None
    min_replicas: int = 1
    max_replicas: float = INFINITY
    idle_seconds: float = 300.0  # without a request, after which a model with a minimum of 0 has no replica
    max_added_per_minute: float = INFINITY
    max_removed_per_minute: float = INFINITY

    def __post_init__(self) -> None:
        require(self.min_replicas >= 0, "min", "0 or more", self.min_replicas)
        least = max(1, self.min_replicas)
        require(self.max_replicas >= least, "max", f"at least {least}", self.max_replicas)
        require(self.idle_seconds >= 0, "scale_to_zero_after", "0 or more seconds", self.idle_seconds)
        require(self.max_added_per_minute >= 1, "max_added_per_minute", "at least 1", self.max_added_per_minute)
        require(self.max_removed_per_minute >= 1, "max_removed_per_minute", "at least 1", self.max_removed_per_minute)


class ScalingDecision(NamedTuple):
    replicas: int
    reason: str  # in words: `5 → 7: 4.1 s/s of work offered, forecast 5.2 in 8 s, p99 320 ms against 200 ms`
    recommendation: Recommendation  # what the scaler said
    min_replicas: int  # the bounds in force, schedules included
    max_replicas: float


class ScalingDecider:
    """Of one model. `decide` is called about once a second, and at once when requests wait for a model at zero."""

    def __init__(self, options: ScalingOptions) -> None:
        self.options = options
        self._anew()
        self._highest = SlidingMaximum(STEP_WINDOW_SECONDS)  # of what was decided within the last minute
        self._lowest = SlidingMaximum(STEP_WINDOW_SECONDS)  # the same with the sign turned
        self._arrived: int | None = None
        self._asked = -INFINITY  # when there last was a request

    def _anew(self) -> None:
        self.scaler = make_scaler(self.options.scaler, self.options.scaler_options or {})

    def reconfigure(self, options: ScalingOptions) -> None:
        """What was seen stays, unless the scaler is another."""
        old = self.options
        if (old.scaler, old.scaler_options or {}) != (options.scaler, options.scaler_options or {}):
            # If that fails, all stays as it was.
            self.scaler = make_scaler(options.scaler, options.scaler_options or {})
        self.options = options

    def decide(self, seen: ScalingMetrics, *, planned: int = 0, kept: int = 0) -> ScalingDecision:
        """`planned`: the least a schedule wants, now or when a replica that is started now is ready. `kept`: replicas
        that ran already and stay for now."""
        options = self.options
        want = _validated(self.scaler.recommend(seen))
        there = seen.ready + seen.starting
        self._notice(seen, there)
        kept = int(min(kept, options.max_replicas))
        least = int(min(max(options.min_replicas, planned, kept), options.max_replicas))
        count, notes = self._awake(seen, want.replicas, least)
        count, notes = self._stepped(seen.now, count, there, least, notes)
        count, notes = self._bounded(count, planned, kept, notes)
        self._highest.add(seen.now, count)
        self._lowest.add(seen.now, -count)
        if not count:  # earlier needs must not start more than one for the next request
            self._anew()
        return ScalingDecision(count, _sentence(there, count, want, seen, notes), want, least, options.max_replicas)

    def _notice(self, seen: ScalingMetrics, there: int) -> None:
        """Notes the last request. Replicas that were there before are not idle since ever."""
        first = self._arrived is None
        if (first and there) or (not first and seen.arrived != self._arrived) or seen.running or seen.waiting:
            self._asked = seen.now
        self._arrived = seen.arrived

    def _awake(self, seen: ScalingMetrics, wanted: int, least: int) -> tuple[int, list[str]]:
        if least > 0:
            return wanted, []
        if seen.now - self._asked >= self.options.idle_seconds and not seen.running and not seen.waiting:
            asked = self._asked > -INFINITY
            return 0, [f"no request for {seen.now - self._asked:.0f} s" if asked else "no request yet"]
        if wanted < 1:
            return 1, [f"the last one stays for {self.options.idle_seconds:g} s without a request"]
        return wanted, []

    def _stepped(self, now: float, count: int, there: int, least: int, notes: list[str]) -> tuple[int, list[str]]:
        up, down = self.options.max_added_per_minute, self.options.max_removed_per_minute
        if up < INFINITY and count > there:
            allowed = max(there, int(up - self._lowest.add(now, -there)))
            if count > allowed:
                return allowed, [*notes, f"{count} are wanted, but only {up:g} may be added in a minute"]
        if down < INFINITY and count < there:
            allowed = min(there, int(self._highest.add(now, there) - down))
            enough = max(count, least)  # fewer there will not be anyway
            if enough < allowed:
                return allowed, [*notes, f"{enough} would do, but only {down:g} may be taken away in a minute"]
        return count, notes

    def _bounded(self, count: int, planned: int, kept: int, notes: list[str]) -> tuple[int, list[str]]:
        options = self.options
        if planned > count and planned > options.min_replicas:
            count, notes = planned, [*notes, f"{count} would do, but a schedule wants {planned}"]
        if kept > max(count, options.min_replicas):
            count, notes = kept, [*notes, f"{kept} ran already, and stay at first"]
        if options.min_replicas > count:
            count, notes = options.min_replicas, [*notes, f"{count} would do, but min is {options.min_replicas}"]
        if count > options.max_replicas:
            most = int(options.max_replicas)
            count, notes = most, [*notes, f"{count} are wanted, but max is {options.max_replicas:g}"]
        return count, notes


def _validated(want: Recommendation) -> Recommendation:
    """A user's own scaler may return anything."""
    if not isinstance(want.replicas, int) or want.replicas < 0:
        raise ValueError(f"the scaler wants {want.replicas!r} replicas")
    return want


def _sentence(there: int, count: int, want: Recommendation, seen: ScalingMetrics, notes: list[str]) -> str:
    parts = [want.reason] if want.reason else []
    if seen.p99 > 0 and seen.slo_seconds < INFINITY:
        parts.append(f"p99 {_duration(seen.p99)} against {_duration(seen.slo_seconds)}")
    change = f"{there} → {count}" if count != there else f"{count}"
    return f"{change}: " + "; ".join([*([", ".join(parts)] if parts else []), *notes])


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
