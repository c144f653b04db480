"""What a server's index says, put into force: what is there counts in the book and gets requests, what is not does not.

Only for copies with which nothing is being done: a job knows better than an index that was read a moment ago.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...core.replica import Event
from ...protocols.repository import Entry, Presence
from ..probing.errors import AskError, RefusedError
from .hands import Hands
from .host import Copy, Host, Phase

SURE = 10.0  # seconds between two looks at an index: somebody else may load and unload there too
SOON = 0.25  # seconds until the next look at one that loads or unloads without us
SILENT, LONGEST = 0.5, 5.0  # seconds until the next look at a server that does not answer: doubled each time
DEAD = 2.0  # seconds without anybody who listens, until what was there is believed to be gone: some close their door
# first, and end when their requests have ended
SURPLUS = 10.0  # seconds for which a device is over its budget with what was found there: then that has to go
ABSENT = Entry(Presence.ABSENT)
INFINITY = float("inf")


class Settling:
    """`too_much(copy)`: it was found there, and with it there is more than the device has."""

    def __init__(self, hands: Hands, too_much: Callable[[Copy], None]) -> None:
        self._hands = hands
        self._too_much = too_much

    def answered(self, host: Host, index: Mapping[str, Entry], now: float) -> None:
        host.known, host.problem, host.silent, host.refuses_since = True, "", 0, INFINITY
        # The pinned first: where there is not room for all, it is theirs.
        for copy in sorted(host.copies.values(), key=lambda copy: not copy.settings.pinned):
            self._settle(copy, index.get(copy.model, ABSENT), now)
        unsettled = any(not _is_settled(copy) for copy in host.copies.values())
        host.look_by(now + (SOON if unsettled else SURE))

    def unanswered(self, host: Host, problem: AskError, now: float) -> None:
        """What it has is counted until it answers again, or is surely gone: nobody listens there, and not just now."""
        host.known, host.problem = False, str(problem)
        if not host.silent:
            host.unheard_since = now
        host.silent += 1
        host.look_by(now + min(LONGEST, SILENT * 2.0 ** min(host.silent - 1, 10)))
        if not isinstance(problem, RefusedError):
            host.refuses_since = INFINITY
            return
        host.refuses_since = min(host.refuses_since, now)
        for copy in host.copies.values():
            if now >= host.refuses_since + DEAD:
                self._let_go(copy)
            if copy.phase is not Phase.UNSURE:
                copy.turn(Phase.UNSURE, now)
                self._hands.move(copy.key, Event.UNLOAD, f"its server {problem}")

    def _settle(self, copy: Copy, entry: Entry, now: float) -> None:
        match entry.presence:
            case Presence.READY:
                self._there(copy, now)
                self._is_too_much(copy, now)
                if entry.bytes and copy.counted:
                    self._hands.room.weighed(copy.key, entry.bytes, now)
            case Presence.ABSENT:
                self._gone(copy, entry.reason or "not loaded", now)
            case Presence.LOADING | Presence.UNLOADING:  # by somebody else, or a load of ours that was given up
                self._count(copy)
                phase = Phase(entry.presence.value)
                if copy.phase is not phase:
                    copy.turn(phase, now)
                    self._hands.move(copy.key, Event.UNLOAD, f"its server is {phase.value} it")

    def _there(self, copy: Copy, now: float) -> None:
        if copy.phase is Phase.RESIDENT:
            return
        if not copy.counted:  # it has its bytes, whether there was room for them or not
            copy.counted, copy.size = True, self._hands.room.footprint(copy.model)
            if copy.size > self._hands.room.room_at(copy.key):
                copy.surplus_since = now
        copy.turn(Phase.RESIDENT, now)
        self._hands.room.resident(copy.key)
        self._hands.move(copy.key, Event.LOAD, "loaded")
        self._hands.see_anew(copy.key)

    def _is_too_much(self, copy: Copy, now: float) -> None:
        """Nobody was asked before it came. It stays if there is room for it after all, or soon will be."""
        if copy.surplus_since == INFINITY:
            return
        if copy.settings.pinned or not self._hands.room.is_over(copy.key):
            copy.surplus_since = INFINITY
        elif now >= copy.surplus_since + SURPLUS:
            self._too_much(copy)

    def _count(self, copy: Copy) -> None:
        """Its bytes are in the book from now on, if there is room for them."""
        if not copy.counted:
            amount = self._hands.room.footprint(copy.model)
            copy.counted = self._hands.room.reserve(copy.key, amount)
            copy.size = amount if copy.counted else 0

    def _gone(self, copy: Copy, why: str, now: float) -> None:
        self._let_go(copy)
        copy.surplus_since, copy.ours = INFINITY, False
        if copy.phase is not Phase.ABSENT:
            copy.turn(Phase.ABSENT, now)
            self._hands.move(copy.key, Event.UNLOAD, why)

    def _let_go(self, copy: Copy) -> None:
        if copy.counted:
            copy.counted, copy.size = False, 0
            self._hands.room.release(copy.key)


def _is_settled(copy: Copy) -> bool:
    return copy.phase in (Phase.ABSENT, Phase.RESIDENT) and copy.surplus_since == INFINITY
