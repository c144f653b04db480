"""The request bodies that a worker holds: how many bytes, whose, and which go when there is no room for more.

All bodies share `limits.buffered`. A body that is still arriving must not hold its part for ever:

- Rate: each second costs it a second of credit, each `limits.body_rate` bytes give one back, and it has at most
  `timeouts.body` of it. So it may pause for that long, but not drip. Time in which we do not read is not counted.
- Time: it has `timeouts.body_total` in all.
- Eviction: without room, the slowest uploads go first. Slow is one that would need long, at the rate it has lately, for
  what it holds already. Those of client addresses that hold more than `limits.client_share` go whatever their speed,
  others above `SLOW_SECONDS`. An address above its share makes room only by its own uploads.

There is no timer for a body: one sweep looks at all of them, some times a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..config import Limits, Timeouts
from . import answers
from .answers import Failure

if TYPE_CHECKING:
    from .client import ClientConnection
    from .exchange import Exchange

SMOOTHING: Final = 0.5  # weight of the last look in an upload's rate
YOUNG_SECONDS: Final = 1.0  # too short to tell how fast an upload is
SLOW_SECONDS: Final = 10.0  # for as much as it holds
ROOM: Final = 0.125  # share of the budget that is freed at once, so that not every piece looks for room


class Upload:
    """A body that is still arriving, as the sweep sees it."""

    __slots__ = ("credit", "exchange", "rate", "seen", "spent")

    def __init__(self, exchange: Exchange, credit: float) -> None:
        self.exchange = exchange
        self.credit = credit  # seconds
        self.rate = -1.0  # bytes a second, lately; -1: not known yet
        self.seen = 0  # bytes at the last look
        self.spent = 0.0  # seconds in which we read

    def look(self, seconds: float) -> int:
        """How many bytes came since the last look, so many seconds ago."""
        came = self.exchange.body_size - self.seen
        self.seen += came
        self.spent += seconds
        rate = came / seconds
        self.rate = rate if self.rate < 0.0 else self.rate + SMOOTHING * (rate - self.rate)
        return came

    @property
    def slowness(self) -> float:
        """Seconds that it would need, at the rate it has lately, for what it holds."""
        return self.exchange.held / max(self.rate, 0.01)


class Buffers:
    def __init__(self, limits: Limits, timeouts: Timeouts, now: float) -> None:
        self.held = 0  # bytes, all together
        self.by_address: dict[str, int] = {}
        self.full: Failure = answers.BUFFERS_FULL  # what to say when there is no room
        self.refused = False  # has anybody been told so, since that was last looked at?
        self._uploads: dict[ClientConnection, Upload] = {}
        self._searched = False  # in vain, since the last sweep
        self._swept_at = now
        self.configure(limits, timeouts)

    def configure(self, limits: Limits, timeouts: Timeouts) -> None:
        self.budget = int(limits.buffered)  # bytes
        self._limits = limits
        self._timeouts = timeouts

    def begin(self, client: ClientConnection, exchange: Exchange) -> None:
        """A body that did not come with its head. Its end need not be told."""
        self._uploads[client] = Upload(exchange, self._timeouts.body)

    def hold(self, exchange: Exchange, size: int) -> bool:
        """Count bytes of a body as held. False: there is no room for them."""
        self.held += size
        exchange.held += size
        address = exchange.client.address
        self.by_address[address] = self.by_address.get(address, 0) + size
        if self.held <= self.budget or self._make_room(exchange):
            return True
        self.refused = True
        return False

    def release(self, exchange: Exchange) -> None:
        size, exchange.held = exchange.held, 0
        self.held -= size
        address = exchange.client.address
        left = self.by_address.get(address, 0) - size
        if left > 0:
            self.by_address[address] = left
        else:
            self.by_address.pop(address, None)

    def sweep(self, now: float) -> None:
        """Refuse what is too slow or takes too long."""
        seconds, self._swept_at = now - self._swept_at, now
        self._searched = False
        if not self._uploads or seconds <= 0.0:
            return
        rate, patience, longest = self._limits.body_rate, self._timeouts.body, self._timeouts.body_total
        for client, upload in list(self._uploads.items()):
            exchange = upload.exchange
            if client.exchange is not exchange or exchange.body_done or exchange.answered:
                del self._uploads[client]
                continue
            if client.halts:
                continue  # it is not read: nobody can tell how fast it is
            came = upload.look(seconds)
            if upload.spent > longest:
                client.fail(exchange, answers.BODY_TIMEOUT)
            elif rate:
                upload.credit = min(patience, upload.credit + came / rate - seconds)
                if upload.credit < 0.0:
                    client.fail(exchange, answers.BODY_TOO_SLOW)

    def _make_room(self, exchange: Exchange) -> bool:
        if self._searched:
            return False
        enough = self.budget * (1.0 - ROOM)
        for client, upload in self._victims(exchange):
            if client.exchange is upload.exchange:  # one that failed may have taken others with it
                client.fail(upload.exchange, answers.BODY_EVICTED)
            if self.held <= enough:
                break
        self._searched = self.held > self.budget
        return not self._searched

    def _victims(self, exchange: Exchange) -> list[tuple[ClientConnection, Upload]]:
        """Who would go for it, the first to go first."""
        share = self.budget * self._limits.client_share
        address = exchange.client.address
        above = {one for one, held in self.by_address.items() if held > share and one}
        found: list[tuple[bool, float, ClientConnection, Upload]] = []
        for client, upload in self._uploads.items():
            other = upload.exchange
            if other is exchange or other.body_done or not other.held or client.halts or client.exchange is not other:
                continue
            greedy = client.address in above and address not in above
            if not greedy and address in above and client.address != address:
                continue
            slowness = upload.slowness
            if greedy or (upload.spent >= YOUNG_SECONDS and slowness > SLOW_SECONDS):
                found.append((greedy, slowness, client, upload))
        found.sort(key=lambda one: one[:2], reverse=True)
        return [(client, upload) for _, _, client, upload in found]
