"""What goes wrong with a model's replicas: noted with the end of their logs, and remembered."""

from __future__ import annotations

import logging

from .hands import StartingHands
from .setbacks import Setbacks, Trouble
from .shortage import Shortage
from .started import Started

WORDS = 20  # lines of a log that are kept
SAID = 3  # of them, in the chronicle, and to whoever waits
LONGEST_TOLD = 500  # characters
WITH_OPERATORS = " are in the gateway's log and admin API"

log = logging.getLogger("steelyard.control.starting")


class Troubles:
    def __init__(self, hands: StartingHands) -> None:
        self.setbacks = Setbacks()
        self.shortage = Shortage()
        self._hands = hands

    def failed(self, replica: Started, reason: str, why: str, began: float, former: int, now: float) -> None:
        """`former`: so many run with settings that are no longer in force, and should have been replaced."""
        self.setbacks.failed(self._trouble(replica, reason, _with_former(why, former)), began, now)

    def ended(self, replica: Started, why: str, now: float) -> None:
        """It had proved itself."""
        self.setbacks.ended(self._trouble(replica, "ended", why), now)

    def ended_leaving(self, replica: Started, why: str) -> None:
        """It would have ended anyway."""
        self._trouble(replica, "ended", why)

    def no_room(self, model: str, why: str, former: int, now: float) -> None:
        why = _with_former(why, former)
        if self.shortage.begin(why, now):
            self._hands.note(f"no replica can be started: {why}", model, level=logging.WARNING)

    def told(self, with_words: bool) -> str:
        """Why the last start failed, for clients that wait for it; empty: none did. What it printed may have secrets in
        it, and is for operators unless they say otherwise."""
        trouble = self.setbacks.trouble
        if trouble is None or not self.setbacks.row:
            return ""
        said = ""
        if trouble.last_words:
            said = f"; its last words{': ' + _joined(trouble.last_words) if with_words else WITH_OPERATORS}"
        return "".join(c if c.isprintable() else " " for c in f"{trouble.why}{said}")[:LONGEST_TOLD]

    def _trouble(self, replica: Started, reason: str, why: str) -> Trouble:
        words = _last_words(replica)
        said = f"; its last words: {_joined(words)}" if words else ""
        self._hands.note(f"{why}{said}", *replica.key, level=logging.WARNING)
        return Trouble(replica.id, reason, why, words)


def _joined(words: tuple[str, ...]) -> str:
    return " | ".join(words[-SAID:])


def _with_former(why: str, former: int) -> str:
    return f"{why}; {former} with the settings before serve on" if former else why


def _last_words(replica: Started) -> tuple[str, ...]:
    try:
        return replica.runtime.last_words(*replica.key, WORDS)
    except Exception:
        log.exception("the last words of %s/%s could not be read", *replica.key)
        return ()
