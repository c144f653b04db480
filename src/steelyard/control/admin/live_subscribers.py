"""Subscribers to the live state of the fleet. It is made once a second for all of them, and not at all without any."""

from __future__ import annotations

from asyncio import Queue, QueueFull
from collections.abc import Callable

import msgspec

from ..observability.views import FleetEvent, LiveView
from ..supervisor.admin_service import AdminService
from .errors import ApiError, encode

MAX_SUBSCRIBERS = 32  # half of the connections that are served: operators must get through
MAX_UNREAD_MESSAGES = 5  # messages that somebody may not have read yet
RETRY_DIRECTIVE = b"retry: 2000\n\n"  # milliseconds until a browser tries again


class LiveSubscriber:
    """`news` is what is still to be sent; None: it is over."""

    def __init__(self, cut: Callable[[], None]) -> None:
        self.queue: Queue[bytes | None] = Queue(MAX_UNREAD_MESSAGES + 3)
        self.abort = cut  # the connection, at once
        self.busy = False  # what was said last is on its way


class LiveSubscribers:
    def __init__(self, operations: AdminService) -> None:
        self._operations = operations
        self._all: set[LiveSubscriber] = set()
        self._latest: LiveView | None = None
        self._told = 0  # happenings, so far
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def join(self, cut: Callable[[], None]) -> LiveSubscriber:
        """Raises Refusal if there are too many, or none any more."""
        if self._closed or len(self._all) >= MAX_SUBSCRIBERS:
            why = "Steelyard stops" if self._closed else f"{MAX_SUBSCRIBERS} follow the fleet already: no more can"
            raise ApiError(503, why, headers={"retry-after": "2"})
        live = self._operations.live_feed
        if not self._all:
            self._told = live.events.count
            self._latest = None
            live.subscribe(self.send_update)
        watcher = LiveSubscriber(cut)
        self._all.add(watcher)
        watcher.queue.put_nowait(RETRY_DIRECTIVE + event("history", live.history()))
        watcher.queue.put_nowait(event("state", self._first()))
        return watcher

    def leave(self, watcher: LiveSubscriber) -> None:
        self._all.discard(watcher)
        if not self._all:
            self._operations.live_feed.unsubscribe(self.send_update)

    def close(self) -> None:
        """All are told that it is over; who has not read so far is cut off."""
        self._closed = True
        for watcher in list(self._all):
            if watcher.busy or not watcher.queue.empty():
                watcher.abort()
            else:
                watcher.queue.put_nowait(None)

    def snapshot(self) -> LiveView:
        """The fleet now, with the latest that happened."""
        return self._view(self._operations.live_feed.events.recent(0))

    def _first(self) -> LiveView:
        """For one who comes between two beats: happenings up to the last, so that the next says none twice."""
        event_log = self._operations.live_feed.events
        if self._latest is None:
            self._latest = self._view([])
        events = event_log.recent(event_log.count - self._told)
        return msgspec.structs.replace(self._latest, events=tuple(events))

    def send_update(self) -> None:
        event_log = self._operations.live_feed.events
        self._latest = self._view(event_log.since(self._told))
        self._told = event_log.count
        message = event("state", self._latest)
        for watcher in list(self._all):
            try:
                watcher.queue.put_nowait(message)
            except QueueFull:  # it does not read: better that it comes again than that we keep all for it
                self.leave(watcher)
                watcher.abort()

    def _view(self, events: list[FleetEvent]) -> LiveView:
        return self._operations.live_feed.view(self._operations.fleet(), events)


def event(name: str, value: msgspec.Struct) -> bytes:
    """As Server-Sent Events are written; JSON has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(value))
