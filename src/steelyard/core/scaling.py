"""How many replicas a model should have: a scaler's wish, within bounds, steps and schedules, and said in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .errors import OptionError
from .request import INFINITY
from .scalers import make_scaler
from .scalers.base import Seen, Want
from .scalers.windows import Highest

MINUTE = 60.0


@dataclass(frozen=True)
class ScalingOptions:
    scaler: str = "work"  # a name of core.scalers.SCALERS, or package.module:Class
    scaler_options: Mapping[str, Any] | None = None
    least: int = 1
    most: float = INFINITY
    idle: float = 300.0  # seconds without a request after which a model with `least` 0 has no replica
    up: float = INFINITY  # replicas that may be added within a minute
    down: float = INFINITY  # and taken away

    def __post_init__(self) -> None:
        _require(self.least >= 0, "min", "0 or more", self.least)
        _require(self.most >= max(1, self.least), "max", f"at least {max(1, self.least)}", self.most)
        _require(self.idle >= 0, "idle", "0 or more seconds", self.idle)
        _require(self.up >= 1, "up", "at least 1", self.up)
        _require(self.down >= 1, "down", "at least 1", self.down)


def _require(ok: bool, name: str, wanted: str, value: object) -> None:
    if not ok:
        raise OptionError(f"{name}: must be {wanted}, not {value!r}")


class Verdict(NamedTuple):
    """What follows for a model now."""

    replicas: int
    why: str  # in words: `5 → 7: 4.1 s/s of work offered, forecast 5.2 in 8 s, p99 320 ms against 200 ms`
    want: Want  # what the scaler said
    least: int  # the bounds in force, schedules included
    most: float


class Scaling:
    """One model's. `decide` is called about once a second, and at once when requests wait for a model at zero."""

    def __init__(self, options: ScalingOptions) -> None:
        self.options = options
        self._anew()
        self._highest = Highest(MINUTE)  # of what was decided within the last minute
        self._lowest = Highest(MINUTE)  # the same with the sign turned
        self._arrived: int | None = None
        self._asked = -INFINITY  # when there last was a request

    def _anew(self) -> None:
        self._scaler = make_scaler(self.options.scaler, self.options.scaler_options or {})

    def use(self, options: ScalingOptions) -> None:
        """Other options from now on; what was seen stays, unless the scaler is another."""
        old = self.options
        if (old.scaler, old.scaler_options or {}) != (options.scaler, options.scaler_options or {}):
            # If that fails, all stays as it was.
            self._scaler = make_scaler(options.scaler, options.scaler_options or {})
        self.options = options

    def decide(self, seen: Seen, *, planned: int = 0, kept: int = 0) -> Verdict:
        """`planned`: what a schedule wants at the least, now or when a replica that is started now is ready.
        `kept`: so many ran already, and stay for now."""
        options = self.options
        want = _checked(self._scaler.want(seen))
        there = seen.ready + seen.coming
        self._notice(seen, there)
        kept = int(min(kept, options.most))
        least = int(min(max(options.least, planned, kept), options.most))
        count, notes = self._awake(seen, want.replicas, least)
        count, notes = self._stepped(seen.now, count, there, least, notes)
        count, notes = self._bounded(count, planned, kept, notes)
        self._highest.add(seen.now, count)
        self._lowest.add(seen.now, -count)
        if not count:  # nobody needs it: what was needed before must not start more than one for the next request
            self._anew()
        return Verdict(count, _sentence(there, count, want, seen, notes), want, least, options.most)

    def _notice(self, seen: Seen, there: int) -> None:
        """When something was last asked for. Replicas that were there before are not idle since ever."""
        first = self._arrived is None
        if (first and there) or (not first and seen.arrived != self._arrived) or seen.running or seen.waiting:
            self._asked = seen.now
        self._arrived = seen.arrived

    def _awake(self, seen: Seen, wanted: int, least: int) -> tuple[int, list[str]]:
        """To zero after the idle time, whatever the scaler still holds; never before."""
        if least > 0:
            return wanted, []
        if seen.now - self._asked >= self.options.idle and not seen.running and not seen.waiting:
            asked = self._asked > -INFINITY
            return 0, [f"no request for {seen.now - self._asked:.0f} s" if asked else "nobody asks"]
        if wanted < 1:
            return 1, [f"the last one stays for {self.options.idle:g} s without a request"]
        return wanted, []

    def _stepped(self, now: float, count: int, there: int, least: int, notes: list[str]) -> tuple[int, list[str]]:
        """No more added, or taken away, than may be within a minute."""
        up, down = self.options.up, self.options.down
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
        if planned > count and planned > options.least:
            count, notes = planned, [*notes, f"{count} would do, but a schedule wants {planned}"]
        if kept > max(count, options.least):
            count, notes = kept, [*notes, f"{kept} ran already, and stay at first"]
        if options.least > count:
            count, notes = options.least, [*notes, f"{count} would do, but min is {options.least}"]
        if count > options.most:
            count, notes = int(options.most), [*notes, f"{count} are wanted, but max is {options.most:g}"]
        return count, notes


def _checked(want: Want) -> Want:
    """A scaler of somebody's own may say anything."""
    if not isinstance(want.replicas, int) or want.replicas < 0:
        raise ValueError(f"the scaler wants {want.replicas!r} replicas")
    return want


def _sentence(there: int, count: int, want: Want, seen: Seen, notes: list[str]) -> str:
    parts = [want.why] if want.why else []
    if seen.p99 > 0 and seen.promised < INFINITY:
        parts.append(f"p99 {_span(seen.p99)} against {_span(seen.promised)}")
    change = f"{there} → {count}" if count != there else f"{count}"
    return f"{change}: " + "; ".join([*([", ".join(parts)] if parts else []), *notes])


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
