"""Subscribers to the live state of the fleet. One view a second serves all of them; without any, none is made."""

from __future__ import annotations

from asyncio import Queue, QueueFull
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..observability.views import FleetEvent, LiveView
from .errors import ApiError, encode

if TYPE_CHECKING:
    from ..supervisor.fleet_admin import FleetAdmin

MAX_SUBSCRIBERS = 32  # half of the authorized connections: operators must get through
MAX_UNREAD_MESSAGES = 5
RETRY_DIRECTIVE = b"retry: 2000\n\n"  # milliseconds until a browser reconnects


class LiveSubscriber:
    def __init__(self, abort: Callable[[], None]) -> None:
        self.queue: Queue[bytes | None] = Queue(MAX_UNREAD_MESSAGES + 3)  # None: the stream ends
        self.abort = abort  # the connection, at once
        self.busy = False  # a message is being sent


class LiveSubscribers:
    def __init__(self, operations: FleetAdmin) -> None:
        self._operations = operations
        self._all: set[LiveSubscriber] = set()
        self._latest: LiveView | None = None
        self._sent = 0  # events
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def join(self, abort: Callable[[], None]) -> LiveSubscriber:
        """Raises ApiError if there are too many, or the server stops."""
        if self._closed or len(self._all) >= MAX_SUBSCRIBERS:
            full = f"{MAX_SUBSCRIBERS} subscribers already; no more are accepted"
            message = "Steelyard is stopping" if self._closed else full
            raise ApiError(503, message, headers={"retry-after": "2"})
        live = self._operations.live_feed
        if not self._all:
            self._sent = live.events.count
            self._latest = None
            live.followers.append(self.send_update)
        subscriber = LiveSubscriber(abort)
        self._all.add(subscriber)
        subscriber.queue.put_nowait(RETRY_DIRECTIVE + event("history", live.history()))
        subscriber.queue.put_nowait(event("state", self._first()))
        return subscriber

    def leave(self, subscriber: LiveSubscriber) -> None:
        self._all.discard(subscriber)
        followers = self._operations.live_feed.followers
        if not self._all and self.send_update in followers:
            followers.remove(self.send_update)

    def close(self) -> None:
        """Ends all streams; aborts those with unread messages."""
        self._closed = True
        for subscriber in list(self._all):
            if subscriber.busy or not subscriber.queue.empty():
                subscriber.abort()
            else:
                subscriber.queue.put_nowait(None)

    def snapshot(self) -> LiveView:
        """The fleet now, with the latest events."""
        return self._view(self._operations.live_feed.events.recent(0))

    def _first(self) -> LiveView:
        """Events up to the last update, so that the next repeats none."""
        event_log = self._operations.live_feed.events
        if self._latest is None:
            self._latest = self._view([])
        events = event_log.recent(event_log.count - self._sent)
        return msgspec.structs.replace(self._latest, events=tuple(events))

    def send_update(self) -> None:
        event_log = self._operations.live_feed.events
        self._latest = self._view(event_log.since(self._sent))
        self._sent = event_log.count
        message = event("state", self._latest)
        for subscriber in list(self._all):
            try:
                subscriber.queue.put_nowait(message)
            except QueueFull:  # it does not read: it may reconnect
                self.leave(subscriber)
                subscriber.abort()

    def _view(self, events: list[FleetEvent]) -> LiveView:
        return self._operations.live_feed.view(self._operations.fleet(), events)


def event(name: str, value: msgspec.Struct) -> bytes:
    """A Server-Sent Event; JSON has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(value))
