"""What changes during a scenario: traffic (`workload.shape`) and replicas (`autoscale`)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from ...documents import Seconds


def check(ok: bool, path: str, wanted: str) -> None:
    # msgspec adds the path of the object; the field is ours to name.
    if not ok:
        raise ValueError(f"`{path}` must be {wanted}")


class LoadStep(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    at: Seconds
    factor: float

    def __post_init__(self) -> None:
        check(self.at >= 0, "at", "0 or more")
        check(self.factor >= 0, "factor", "0 or more")


class TrafficShape(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The load is multiplied by a factor that depends on the time."""

    __renamed__: ClassVar[dict[str, str]] = {"lasts": "duration"}

    kind: Literal["constant", "diurnal", "spike", "steps"] = "constant"
    period: Seconds = Seconds(0.0)  # 0: no repetition
    low: float = 0.25  # diurnal: at the beginning of a period
    high: float = 1.75  # diurnal: in the middle
    at: Seconds = Seconds(60.0)  # spike: when it begins
    factor: float = 5.0  # spike: how high it is
    rise: Seconds = Seconds(2.0)  # spike: to the top, and back
    duration: Seconds = Seconds(60.0)  # spike: so long it stays
    steps: tuple[LoadStep, ...] = ()  # steps: before the first, the factor is 1

    def __post_init__(self) -> None:
        check(self.period >= 0, "period", "0 or more")
        check(self.kind != "diurnal" or self.period > 0, "period", "positive for `diurnal`")
        check(0 <= self.low <= self.high and self.high > 0, "low", "from 0 to `high`, which is positive")
        check(self.factor > 0, "factor", "positive")
        check(min(self.at, self.rise, self.duration) >= 0, "at", "0 or more, and so must `rise` and `duration`")
        check(self.kind != "steps" or bool(self.steps), "steps", "one or more for `steps`")
        times = [float(step.at) for step in self.steps]
        check(times == sorted(set(times)), "steps", "in the order of their times")
        if self.kind == "steps" and not self.period:
            check(self.steps[-1].factor > 0, "steps", "above 0 at the end, or the rest never comes")
        if self.period and self.kind in ("spike", "steps"):
            check(self.period > self.knots()[-1][0], "period", "longer than what is to be repeated")

    def knots(self) -> list[tuple[float, float]]:
        """Times and factors, with straight lines between them, of the first period."""
        if self.kind == "spike":
            top = self.at + self.rise
            end = top + self.duration
            return [(0.0, 1.0), (self.at, 1.0), (top, self.factor), (end, self.factor), (end + self.rise, 1.0)]
        knots = [(0.0, 1.0)]
        for step in self.steps:
            knots += [(float(step.at), knots[-1][1]), (float(step.at), step.factor)]
        return knots


class Autoscale(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The fleet's size is decided by a scaler; `fleet[0]` says what one replica is."""

    __renamed__: ClassVar[dict[str, str]] = {
        "spread": "cold_start_jitter",
        "probe": "probe_interval",
        "every": "interval",
        "idle": "scale_to_zero_after",
    }

    scalers: tuple[str, ...] = ("work", "kpa", "hpa")
    options: dict[str, dict[str, Any]] = {}  # of each scaler
    start: int = 1  # replicas that are ready at the beginning
    min: int = 1
    max: int = 1000
    scale_to_zero_after: Seconds = Seconds(300.0)
    cold_start: Seconds = Seconds(30.0)
    cold_start_jitter: float = 0.2  # share
    probe_interval: Seconds = Seconds(1.0)  # until a ready replica is seen
    interval: Seconds = Seconds(1.0)  # between two decisions

    def __post_init__(self) -> None:
        check(bool(self.scalers), "scalers", "at least one")
        check(self.min >= 0, "min", "0 or more")
        check(self.max >= max(1, self.min), "max", "at least 1 and `min`")
        check(0 <= self.start <= self.max, "start", "from 0 to `max`")
        check(self.cold_start >= 0, "cold_start", "0 or more")
        check(0 <= self.cold_start_jitter < 1, "cold_start_jitter", "from 0 to below 1")
        check(self.probe_interval >= 0, "probe_interval", "0 or more")
        check(self.interval > 0, "interval", "positive")
