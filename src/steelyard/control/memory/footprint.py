"""What a model holds while idle: declared, until measured by its server or by the growth of memory use at a load."""

from __future__ import annotations

from collections import deque
from enum import Enum

MAX_COMPARISON_SECONDS = 60.0  # after it came
MAX_MEASUREMENTS_PER_REPLICA = 5
MAX_REPLICAS = 256
MIN_MEASUREMENTS = 3  # before it may fall below what was declared
MIN_SPACING_SECONDS = 1.0  # between two that count as two
DECAY_PER_MEASUREMENT = 0.95  # at most
SUSPICIOUS_RATIO = 2  # times the declared: a load that seems to hold more must be confirmed by another
REPORT_RATIO = 1.01  # a smaller difference is not worth a message


class LoadStage(Enum):
    ABSENT = 0
    LOADING = 1
    LOADED = 2
    DONE = 3


class LoadDifference:
    """Of a server or a device, before and after; only idle samples can be compared."""

    def __init__(self) -> None:
        self.clean = True  # no request in between may have left something behind
        self._phase = LoadStage.ABSENT
        self._before: int | None = None
        self._since = 0.0
        self._changes = 0

    def unloaded(self) -> None:
        if self._phase is not LoadStage.ABSENT:
            self._phase, self._before = LoadStage.ABSENT, None

    def loading(self) -> None:
        if self._phase is LoadStage.ABSENT:
            self._phase = LoadStage.LOADING

    def loaded(self, now: float) -> None:
        if self._phase in (LoadStage.ABSENT, LoadStage.LOADING):
            self._phase, self._since, self.clean = LoadStage.LOADED, now, True

    def other_replicas_changed(self, changes: int) -> None:
        """`changes`: how often. What was in use before cannot be compared any more."""
        if changes != self._changes:
            self._changes, self._before = changes, None

    def sample(self, used: int, idle: bool, began: float, *, announced: bool = False) -> int | None:
        """What the model holds, if this sample tells. `announced`: only we load it."""
        if self._phase is LoadStage.ABSENT and idle:
            # Unannounced, the load may have begun before it was seen: the least was before that.
            self._before = used if announced or self._before is None else min(self._before, used)
        elif self._phase is LoadStage.LOADED and began >= self._since:
            self.clean = self.clean and idle
            if idle or self._before is None or began - self._since > MAX_COMPARISON_SECONDS:
                self._phase = LoadStage.DONE
            if idle and self._before is not None and used > self._before:
                return used - self._before
        return None


class FootprintEstimate:
    """The largest of the last few measurements. It rises at once and falls slowly."""

    def __init__(self, declared: int) -> None:
        self.declared = declared
        self.measured: dict[str, deque[int]] = {}  # by replica
        self._at: dict[str, float] = {}
        self._count = 0
        self._upper = 0
        self._value = 0
        self._doubted = 0

    @property
    def value(self) -> int:
        if self._count < MIN_MEASUREMENTS:
            return max(self.declared, self._value)
        return self._value

    @property
    def source(self) -> str:
        if self._count and (self._count >= MIN_MEASUREMENTS or self._value >= self.declared):
            return "measured"
        return "declared" if self.declared else "unknown"

    def observe(self, replica: str, measured: int, now: float) -> None:
        if measured <= 0:
            return
        seen = self.measured.setdefault(replica, deque(maxlen=MAX_MEASUREMENTS_PER_REPLICA))
        if seen and now - self._at[replica] < MIN_SPACING_SECONDS:
            seen[-1] = max(seen[-1], measured)
        else:
            seen.append(measured)
            self._at[replica] = now
            self._count += 1
            self._upper = int(self._upper * DECAY_PER_MEASUREMENT)
        if len(self.measured) > MAX_REPLICAS:
            self._forget(next(iter(self.measured)))
        self._upper = max(self._upper, *(max(each) for each in self.measured.values()))
        if self._upper > self._value or self._upper * REPORT_RATIO < self._value:
            self._value = self._upper

    def believed(self, difference: int) -> int:
        """Of the growth of a device's use after a load: another process may have come meanwhile."""
        most = SUSPICIOUS_RATIO * self.declared
        if not self.declared or difference <= most:
            return difference
        doubted, self._doubted = self._doubted, difference
        return max(most, min(doubted, difference))

    @property
    def excess(self) -> int:
        return max(0, self.value - self.declared)

    def lower(self, amount: int) -> None:
        """By what was proven not to be in use; no less than was declared."""
        if not self.excess:
            return
        least = self.value - min(amount, self.excess)
        for replica, seen in self.measured.items():
            self.measured[replica] = deque((min(each, least) for each in seen), maxlen=MAX_MEASUREMENTS_PER_REPLICA)
        self._upper = self._value = least

    def keep(self, replicas: set[str]) -> None:
        """Forgets all others; what was learned of them falls slowly."""
        for replica in self.measured.keys() - replicas:
            self._forget(replica)

    def _forget(self, replica: str) -> None:
        del self.measured[replica], self._at[replica]
