"""Who a server process says it is, over time: another name is a restart, unless several processes answer in turn."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_REMEMBERED_IDENTITIES = 64  # names remembered


class ProcessIdentity(Generic[T]):
    def __init__(self, is_same: Callable[[T, T], bool] = eq) -> None:
        self.current: T | None = None
        self._is_same = is_same
        self._before: list[T] = []
        self._several = False  # one that was gone came back: processes that take turns, as with `--workers 4`

    def is_restart(self, who: T) -> bool:
        """It says that it is `who`: is that a restart? The first name is none."""
        if self.current is None:
            self.current = who
            return False
        if self._is_same(who, self.current):
            return False
        if any(self._is_same(who, other) for other in self._before):
            self._several = True
        else:
            self._before = [*self._before, self.current][-MAX_REMEMBERED_IDENTITIES:]
        self.current = who
        return not self._several

    def is_current(self, who: T) -> bool:
        """Surely the process that answered before?"""
        return self.current is not None and self._is_same(who, self.current)
