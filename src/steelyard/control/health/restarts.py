"""Whether the process that answers is the one that answered before."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import eq
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_REMEMBERED_IDENTITIES = 64


class ProcessIdentity(Generic[T]):
    """A new name that a server gives itself is a restart, unless several processes take turns."""

    def __init__(self, is_same: Callable[[T, T], bool] = eq) -> None:
        self.current: T | None = None
        self._is_same = is_same
        self._before: list[T] = []
        self._several = False  # an earlier name came back, as with `--workers 4`

    def is_restart(self, name: T) -> bool:
        """The first name is none."""
        if self.current is None:
            self.current = name
            return False
        if self._is_same(name, self.current):
            return False
        if any(self._is_same(name, other) for other in self._before):
            self._several = True
        else:
            self._before = [*self._before, self.current][-MAX_REMEMBERED_IDENTITIES:]
        self.current = name
        return not self._several

    def is_current(self, name: T) -> bool:
        return self.current is not None and self._is_same(name, self.current)


class ProcessChange(Enum):
    NONE = "the same, as far as one can tell"
    POSSIBLE = "perhaps another: contact was lost meanwhile"
    RESTARTED = "another"


class RestartDetector:
    """Another name is a restart; so is an answer after refused connections, unless the name is the same."""

    def __init__(self) -> None:
        self.count = 0
        self._identity: ProcessIdentity[str] = ProcessIdentity()
        self._answered = False
        self._refused = False  # since it answered
        self._in_doubt = False

    @property
    def instance(self) -> str:
        return self._identity.current or ""

    def lost_contact(self) -> None:
        self._in_doubt = True

    def refused(self) -> None:
        self._refused = self._refused or self._answered

    def answered(self, instance: str) -> ProcessChange:
        same = bool(instance) and self._identity.is_current(instance)
        renamed = bool(instance) and self._identity.is_restart(instance)
        gone, doubt = self._refused, self._in_doubt
        self._answered = True
        self._refused = self._in_doubt = False
        if renamed or (gone and not same):
            self.count += 1
            return ProcessChange.RESTARTED
        return ProcessChange.POSSIBLE if doubt and not same else ProcessChange.NONE
