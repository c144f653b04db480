"""Is the process that answers the one that answered before? What was learned about it holds only then."""

from __future__ import annotations

from enum import Enum

from .identity import ProcessIdentity


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
