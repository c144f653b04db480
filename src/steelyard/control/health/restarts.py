"""Is the process that answers the one that answered before? What was learned about it holds only then."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import eq
from typing import Generic, TypeVar

# Who a server process says it is, over time: another name is a restart, unless several processes answer in turn.

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


class ProcessChange(Enum):
    NONE = "the same, as far as one can tell"
    POSSIBLE = "perhaps another: it was lost meanwhile"
    RESTARTED = "another"


class RestartDetector:
    def __init__(self) -> None:
        self.restarts = 0
        self._identity: ProcessIdentity[str] = ProcessIdentity()
        self._lived = False
        self._refused = False  # since it lived
        self._in_doubt = False

    @property
    def instance(self) -> str:
        """Who it says it is; empty: it does not say."""
        return self._identity.current or ""

    def lost_contact(self) -> None:
        """It was lost from sight."""
        self._in_doubt = True

    def refused(self) -> None:
        """Nobody listens: if somebody did before, that process is gone."""
        self._refused = self._refused or self._lived

    def answered(self, instance: str) -> ProcessChange:
        same = bool(instance) and self._identity.is_current(instance)
        renamed = bool(instance) and self._identity.is_restart(instance)
        gone, doubt = self._refused, self._in_doubt
        self._lived = True
        self._refused = self._in_doubt = False
        if renamed or (gone and not same):
            self.restarts += 1
            return ProcessChange.RESTARTED
        return ProcessChange.POSSIBLE if doubt and not same else ProcessChange.NONE
