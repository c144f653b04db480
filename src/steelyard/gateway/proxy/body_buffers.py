"""The request bodies that a worker holds, within `limits.total_buffer_bytes`.

A body that is still arriving must not hold its part for ever; one sweep looks at all, some times a second:

- Rate: each second costs a second of credit, each `limits.min_body_rate` bytes give one back, up to `timeouts.body`. So
  it may pause for that long, but not drip. Time in which we do not read is not counted.
- Time: it has `timeouts.body_total` in all.
- Eviction: without room, the uploads that need longest, at their recent rate, for what they hold go first. Those of
  addresses above `limits.max_client_share` go whatever their speed, others above SLOW_UPLOAD_SECONDS. An address above
  its share makes room only by its own uploads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...config import LimitsConfig, TimeoutsConfig
from ..exchange import ENDED, Exchange
from ..http import local_replies
from ..http.local_replies import ErrorReply

if TYPE_CHECKING:
    from .client_connection import ClientConnection

RATE_SMOOTHING: Final = 0.5
MIN_RATE_SECONDS: Final = 1.0  # less does not tell how fast an upload is
SLOW_UPLOAD_SECONDS: Final = 10.0
EVICTION_SHARE: Final = 0.125  # of the budget, freed at once: not every piece looks for room


class Upload:
    __slots__ = ("credit", "exchange", "rate", "read_seconds", "sampled_bytes")

    def __init__(self, exchange: Exchange, credit: float) -> None:
        self.exchange = exchange
        self.credit = credit  # seconds
        self.rate = -1.0  # recent bytes a second; -1: not known yet
        self.sampled_bytes = 0  # bytes at the last look
        self.read_seconds = 0.0  # seconds in which we read

    def sample(self, seconds: float) -> int:
        """Bytes that came since the last look, `seconds` ago."""
        came = self.exchange.body_size - self.sampled_bytes
        self.sampled_bytes += came
        self.read_seconds += seconds
        rate = came / seconds
        self.rate = rate if self.rate < 0.0 else self.rate + RATE_SMOOTHING * (rate - self.rate)
        return came

    @property
    def seconds_to_resend(self) -> float:
        return self.exchange.held_bytes / max(self.rate, 0.01)


class BodyBuffers:
    def __init__(self, limits: LimitsConfig, timeouts: TimeoutsConfig, now: float) -> None:
        self.held_bytes = 0  # bytes, all together
        self.by_address: dict[str, int] = {}
        self.full_reply: ErrorReply = local_replies.BUFFERS_FULL  # what to say when there is no room
        self.refused = False  # was a body refused since this was last read?
        self.uploads: dict[ClientConnection, Upload] = {}
        self._eviction_failed = False  # since the last sweep: an eviction freed nothing
        self._swept_at = now
        self.configure(limits, timeouts)

    def configure(self, limits: LimitsConfig, timeouts: TimeoutsConfig) -> None:
        self.budget = int(limits.total_buffer_bytes)  # bytes
        self._limits = limits
        self._timeouts = timeouts

    def begin(self, client: ClientConnection, exchange: Exchange) -> None:
        self.uploads[client] = Upload(exchange, self._timeouts.body)

    def hold(self, exchange: Exchange, size: int, now: float) -> bool:
        self.held_bytes += size
        exchange.held_bytes += size
        address = exchange.client.address
        self.by_address[address] = self.by_address.get(address, 0) + size
        if self.held_bytes <= self.budget or self._make_room(exchange, now):
            return True
        self.refused = True
        return False

    def release(self, exchange: Exchange) -> None:
        size, exchange.held_bytes = exchange.held_bytes, 0
        self.held_bytes -= size
        address = exchange.client.address
        left = self.by_address.get(address, 0) - size
        if left > 0:
            self.by_address[address] = left
        else:
            self.by_address.pop(address, None)

    def sweep(self, now: float) -> None:
        seconds, self._swept_at = now - self._swept_at, now
        self._eviction_failed = False
        if not self.uploads or seconds <= 0.0:
            return
        rate, timeout, longest = self._limits.min_body_rate, self._timeouts.body, self._timeouts.body_total
        for client, upload in list(self.uploads.items()):
            exchange = upload.exchange
            if exchange.body_complete or exchange.response_started:
                del self.uploads[client]
                continue
            if client.read_pauses:
                continue  # it is not read, so its rate is unknown
            came = upload.sample(seconds)
            if upload.read_seconds > longest:
                client.fail(exchange, local_replies.BODY_TIMEOUT, now)
            elif rate:
                upload.credit = min(timeout, upload.credit + came / rate - seconds)
                if upload.credit < 0.0:
                    client.fail(exchange, local_replies.BODY_TOO_SLOW, now)

    def _make_room(self, exchange: Exchange, now: float) -> bool:
        if self._eviction_failed:
            return False
        enough = self.budget * (1.0 - EVICTION_SHARE)
        for client, upload in self._victims(exchange):
            if upload.exchange.state != ENDED:  # one that failed may have taken others with it
                client.fail(upload.exchange, local_replies.BODY_EVICTED, now)
            if self.held_bytes <= enough:
                break
        self._eviction_failed = self.held_bytes > self.budget
        return not self._eviction_failed

    def _victims(self, exchange: Exchange) -> list[tuple[ClientConnection, Upload]]:
        share = self.budget * self._limits.max_client_share
        address = exchange.client.address
        above = {one for one, held in self.by_address.items() if held > share and one}
        found: list[tuple[bool, float, ClientConnection, Upload]] = []
        for client, upload in self.uploads.items():
            other = upload.exchange
            if other is exchange or other.body_complete or not other.held_bytes:
                continue
            if client.read_pauses or other.state == ENDED:
                continue
            greedy = client.address in above and address not in above
            if not greedy and address in above and client.address != address:
                continue
            slowness = upload.seconds_to_resend
            if greedy or (upload.read_seconds >= MIN_RATE_SECONDS and slowness > SLOW_UPLOAD_SECONDS):
                found.append((greedy, slowness, client, upload))
        found.sort(key=lambda one: one[:2], reverse=True)
        return [(client, upload) for _, _, client, upload in found]
