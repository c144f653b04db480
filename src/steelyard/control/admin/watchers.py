"""Who follows the fleet live. What is said is made once a second, for all of them, and not at all for nobody."""

from __future__ import annotations

from asyncio import Queue, QueueFull
from collections.abc import Callable

import msgspec

from ..operations import Operations
from ..views import Happening, LiveView
from .refusals import Refusal, encode

MOST = 32  # half of the connections that are served: operators must get through
BEHIND = 5  # messages that somebody may not have read yet
RETRY = b"retry: 2000\n\n"  # milliseconds until a browser tries again


class Watcher:
    """`news` is what is still to be sent; None: it is over."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self.news: Queue[bytes | None] = Queue(BEHIND + 3)
        self.cut = cut  # the connection, at once
        self.busy = False  # what was said last is on its way


class Watchers:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._all: set[Watcher] = set()
        self._latest: LiveView | None = None
        self._told = 0  # happenings, so far
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def join(self, cut: Callable[[], None]) -> Watcher:
        """Raises Refusal if there are too many, or none any more."""
        if self._closed or len(self._all) >= MOST:
            why = "Steelyard stops" if self._closed else f"{MOST} follow the fleet already: no more can"
            raise Refusal(503, why, headers={"retry-after": "2"})
        live = self._operations.following
        if not self._all:
            self._told = live.chronicle.count
            self._latest = None
            live.follow(self._beat)
        watcher = Watcher(cut)
        self._all.add(watcher)
        watcher.news.put_nowait(RETRY + event("history", live.history()))
        watcher.news.put_nowait(event("state", self._first()))
        return watcher

    def leave(self, watcher: Watcher) -> None:
        self._all.discard(watcher)
        if not self._all:
            self._operations.following.leave(self._beat)

    def close(self) -> None:
        """All are told that it is over; who has not read so far is cut off."""
        self._closed = True
        for watcher in list(self._all):
            if watcher.busy or not watcher.news.empty():
                watcher.cut()
            else:
                watcher.news.put_nowait(None)

    def once(self) -> LiveView:
        """The fleet now, with the latest that happened."""
        return self._view(self._operations.following.chronicle.recent(0))

    def _first(self) -> LiveView:
        """For one who comes between two beats: happenings up to the last, so that the next says none twice."""
        chronicle = self._operations.following.chronicle
        if self._latest is None:
            self._latest = self._view([])
        events = chronicle.recent(chronicle.count - self._told)
        return msgspec.structs.replace(self._latest, events=tuple(events))

    def _beat(self) -> None:
        chronicle = self._operations.following.chronicle
        self._latest = self._view(chronicle.since(self._told))
        self._told = chronicle.count
        message = event("state", self._latest)
        for watcher in list(self._all):
            try:
                watcher.news.put_nowait(message)
            except QueueFull:  # it does not read: better that it comes again than that we keep all for it
                self.leave(watcher)
                watcher.cut()

    def _view(self, events: list[Happening]) -> LiveView:
        return self._operations.following.view(self._operations.fleet(), events)


def event(name: str, value: msgspec.Struct) -> bytes:
    """As Server-Sent Events are written; JSON has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(value))
