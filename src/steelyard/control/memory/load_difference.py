"""The growth of memory use at a load: a model's footprint where no server reports it."""

from __future__ import annotations

from enum import Enum

MAX_COMPARISON_SECONDS = 60.0  # after it came


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

    def neighbours_changed(self, changes: int) -> None:
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
