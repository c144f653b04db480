"""Memory admission of one model: a filter before the policy.

Idea: only replicas whose device has room are candidates; the choice reserves its bytes in the ledger until the attempt
ends. A request of unknown size runs alone on its device; one whose size is to be learned has its server to itself.

Earmarks: for a request without room for EARMARK_AFTER_SECONDS a device saves up what is freed there, closed to others
of no higher priority, for at most MAX_EARMARK_SECONDS.

Limits: sizes are upper bounds (request_size.py), raised after an out-of-memory error, which also keeps the size off the
device for a while (`quarantine`). Above MAX_FILTERED_CANDIDATES candidates only the policy's choice is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..request import INFINITY, UNKNOWN_BYTES, MemoryRequirement, RequestPhase
from .filter import BlockedSizes, CandidateFilter
from .ledger import EARMARK_SECONDS, Device, MemoryLedger, Residency, Server
from .request_size import RequestSizeModel, RequestSizeState

if TYPE_CHECKING:
    from ..pool import Pool
    from ..replica import Replica
    from ..request import Attempt, Request

MAX_FILTERED_CANDIDATES = 64
EARMARK_AFTER_SECONDS = 0.25
MAX_EARMARK_SECONDS = 5.0  # if it has not helped by then, it will not
LINGER_FACTOR = 2.0  # × predicted: then an attempt that was cut off has ended in its server too
MAX_LINGER_SECONDS = 30.0
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.002, 0.016  # for room that another process may have released
MIN_OOM_RAISE = 1.25  # × the size believed, after an out-of-memory error
MAX_OOM_RAISE = 4.0  # it may have been another's fault
MAX_QUARANTINES_PER_DEVICE = 64
MAX_EXCLUSIVE_REQUESTS = 256  # of one model in one worker
EXCLUSIVE_SECONDS = 1.0
MAX_UNMEASURED_KINDS = 64
ANSWERS_BEFORE_UNMEASURED = 16  # without a measurement, after which none is expected


class SmallestBlocked(BlockedSizes):
    """The smallest size that found no room in one pass over a queue: anything as large need not be tried."""

    __slots__ = ("_admission", "_alone", "_least")

    def __init__(self, admission: MemoryAdmission) -> None:
        self._admission = admission
        self._least = INFINITY
        self._alone = False

    def covers(self, request: Request) -> bool:
        need = self._admission.prepare(request)
        if request.avoid or request.priority or need.earmark is not None:
            return False  # it may go where others may not
        covered = self._alone if need.bytes == UNKNOWN_BYTES else need.bytes >= self._least
        need.blocked = covered
        return covered

    def note(self, request: Request) -> None:
        need = request.memory
        if need is None or not need.blocked or request.avoid or request.priority:
            return
        if need.bytes == UNKNOWN_BYTES:
            self._alone = True
        else:
            self._least = min(self._least, need.bytes)


class MemoryAdmission(CandidateFilter):
    def __init__(self, pool: Pool, ledger: MemoryLedger, sizes: RequestSizeModel) -> None:
        self.pool = pool
        self.ledger = ledger
        self.request_size = sizes
        self.footprint = 0
        self.unmeasured = False
        self.measured = 0  # answers that said what their request needed
        self._unmeasured_answers = 0  # answers that did not, before any did
        self.exclusive_count = 0  # requests that had a server to themselves, to be measured
        self.waits_for_exclusive = False  # a request could not go because of that
        self._unmeasured_kinds: dict[str, int] = {}  # by kind: requests that ran alone and were not measured
        self._sample_offset = 0
        self._last_blocked = (0, -INFINITY, 0)  # bytes that found no room, until when that holds, and release count
        self.poll_delay = MIN_POLL_SECONDS
        self._capacity_bytes = -1  # so much fits with nothing else running, as last worked out
        self._capacity_checked_at = -INFINITY
        self._quarantines: dict[str, list[tuple[int, float]]] = {}  # device → (bytes, until)

    def prepare(self, request: Request) -> MemoryRequirement:
        need = request.memory
        if need is None:
            need = request.memory = MemoryRequirement()
        if need.version != self.request_size.version:
            need.version = self.request_size.version
            need.estimated_bytes = self.request_size.upper_bound(request.features, request.kind)
            need.exclusive = False
            if not self.request_size.known:
                need.bytes = 0 if self.unmeasured else UNKNOWN_BYTES
            elif self._is_extrapolated(request):
                need.bytes = UNKNOWN_BYTES
            else:
                need.bytes, need.exclusive = need.estimated_bytes, self._should_measure(request)
        return need

    def _is_extrapolated(self, request: Request) -> bool:
        """Is nothing known of one so large? Then it runs alone and is measured; where it is not, the guess must do."""
        if self._unmeasured_kinds.get(request.kind, 0) >= ANSWERS_BEFORE_UNMEASURED:
            return False
        return self.request_size.is_extrapolated(request.features, request.kind)

    def _should_measure(self, request: Request) -> bool:
        """Is too little known of its kind? Then it has its server to itself, which is when it can be measured."""
        kind = request.kind
        return (
            self.exclusive_count < MAX_EXCLUSIVE_REQUESTS
            and self._unmeasured_kinds.get(kind, 0) < ANSWERS_BEFORE_UNMEASURED
            and self.request_size.is_learning(kind)
        )

    def redeclare(self, sizes: RequestSizeModel) -> bool:
        sizes.version = self.request_size.version + 1
        self.request_size = sizes
        self._capacity_bytes = -1
        return True

    def add_replica(self, replica: Replica) -> None:
        if replica.residency is not None:
            replica.residency.footprint = self.footprint

    def load_state(self, footprint: int, state: RequestSizeState, unmeasured: bool) -> None:
        self.request_size.load_state(state)
        self.unmeasured = unmeasured and not self.request_size.known
        self.footprint = footprint
        for replica in self.pool.replicas.values():
            if replica.residency is not None:
                replica.residency.footprint = footprint
        self._capacity_bytes = -1

    def record_measurement(self, request: Request, measured: bool) -> None:
        need, kind = request.memory, request.kind
        if measured:
            self.measured += 1
            self._unmeasured_answers = 0
            self._unmeasured_kinds.pop(kind, None)
        elif self.measured or self.request_size.known:
            if (
                need is not None
                and (need.exclusive or need.bytes == UNKNOWN_BYTES)
                and (kind in self._unmeasured_kinds or len(self._unmeasured_kinds) < MAX_UNMEASURED_KINDS)
            ):
                self._unmeasured_kinds[kind] = self._unmeasured_kinds.get(kind, 0) + 1
        else:
            self._unmeasured_answers += 1
            if self._unmeasured_answers >= ANSWERS_BEFORE_UNMEASURED and not self.unmeasured:
                self.unmeasured = True
                self.request_size.version += 1

    def exceeds_capacity(self, request: Request, now: float) -> tuple[int, int, str] | None:
        need = self.prepare(request)
        if need.bytes <= 0:
            return None  # it needs nothing, or its size is unknown
        if need.bytes <= self._capacity_bytes and now - self._capacity_checked_at < 1.0:
            return None
        best, where = -1, ""
        stays: dict[Device, int] = {}
        for replica in self.pool.replicas.values():
            place = replica.residency
            most = (
                INFINITY if place is None or not place.device.capacity else self.ledger.max_request_bytes(place, stays)
            )
            if most > best:
                best, where = int(min(most, 1 << 62)), place.device.name if place is not None else ""
                if best >= need.bytes:
                    break  # it fits; how much more would fit does not matter
        self._capacity_bytes, self._capacity_checked_at = best, now
        if not self.pool.replicas or need.bytes <= best:
            return None  # there is no replica to tell, or it fits
        return need.bytes, max(best, 0), where

    def filter(self, request: Request, candidates: Sequence[Replica], now: float) -> Sequence[Replica]:
        """The candidates with room for it now; of very many, all of them: `reserve` tells."""
        need = self.prepare(request)
        need.blocked = False
        if len(candidates) > MAX_FILTERED_CANDIDATES:
            return () if self._was_blocked(request, need, now) else candidates
        seen: dict[Device, tuple[int, int]] = {}
        return [r for r in candidates if r.residency is None or self._fits(request, need, r.residency, now, seen)]

    def _was_blocked(self, request: Request, need: MemoryRequirement, now: float) -> bool:
        """Did one as large find no room a moment ago, with nothing released since? Saves looks at many devices."""
        least, until, given = self._last_blocked
        if request.avoid or request.priority or need.earmark is not None or need.bytes == UNKNOWN_BYTES:
            return False
        return need.bytes >= least and now < until and given == self.ledger.release_count

    def fits(self, request: Request, replica: Replica, now: float) -> bool:
        return replica.residency is None or self._fits(request, self.prepare(request), replica.residency, now, {})

    def _fits(
        self,
        request: Request,
        need: MemoryRequirement,
        place: Residency,
        now: float,
        seen: dict[Device, tuple[int, int]],
    ) -> bool:
        """`seen`: the usage of devices, looked up once for many places."""
        device = place.server.device
        if not self._may_use(request, need, place.server, now):
            return False
        if need.bytes == UNKNOWN_BYTES and device.capacity:
            return not self.ledger.cells.count(device.index)
        look = seen.get(device)
        if look is None:
            look = seen[device] = self.ledger.usage(device)
        return self.ledger.fits(place, max(need.bytes, 0), look)

    def reserve(self, request: Request, replica: Replica, now: float) -> bool:
        place, need = replica.residency, self.prepare(request)
        if place is None:
            return True
        device = place.server.device
        if not self._may_use(request, need, place.server, now):
            return False
        if need.bytes == UNKNOWN_BYTES and device.capacity:
            need.reserved_bytes = self.ledger.reserve_all(place)
            taken = need.reserved_bytes > 0
        else:
            need.reserved_bytes = max(need.bytes, 0)
            taken = self.ledger.reserve(place, need.reserved_bytes)
        if taken:
            need.blocked = False
            self.poll_delay = MIN_POLL_SECONDS
            self.release_earmark(request)
        return taken

    def adopt(self, request: Request, replica: Replica, amount: int) -> None:
        if replica.residency is not None:
            need = self.prepare(request)
            need.reserved_bytes, need.exclusive = amount, False
            self.ledger.add(replica.residency, amount)

    def cancel_reservation(self, request: Request, replica: Replica) -> None:
        if request.memory is not None and replica.residency is not None:
            self.ledger.release(replica.residency, request.memory.reserved_bytes)

    def _may_use(self, request: Request, need: MemoryRequirement, server: Server, now: float) -> bool:
        """Apart from room: no earmark of another, no exclusive attempt, no quarantine of its size?"""
        device = server.device
        if not self._respects_earmarks(device, request, now) or not self._may_join_server(need, server, now):
            return False
        return not (self._quarantines and self._is_quarantined(device, need.estimated_bytes, now))

    def _may_join_server(self, need: MemoryRequirement, server: Server, now: float) -> bool:
        """No attempt has the server to itself, and it is idle if this request needs it so?"""
        if server.exclusive_attempt is not None and now < server.exclusive_until:
            self.waits_for_exclusive = True
            return False
        if need.exclusive and self.ledger.is_busy(server):
            self.waits_for_exclusive = True
            return False
        return True

    def attach(self, attempt: Attempt, now: float) -> None:
        place, need = attempt.replica.residency, attempt.request.memory
        if place is not None and need is not None:
            attempt.reservation = (place, need.reserved_bytes)
            if need.exclusive:
                self.exclusive_count += 1
                place.server.exclusive_attempt, place.server.exclusive_until = attempt, now + EXCLUSIVE_SECONDS

    def release(self, attempt: Attempt, now: float, *, over: bool) -> None:
        if attempt.reservation is None:
            return
        place, amount = attempt.reservation
        attempt.reservation = None
        if place.server.exclusive_attempt is attempt:
            place.server.exclusive_attempt = None
            self.ledger.freed[place.server.device] = None
        until = attempt.started + LINGER_FACTOR * attempt.predicted
        if over:
            self.ledger.release(place, amount)
        else:
            self.ledger.release_at(
                place, amount, min(max(until, now + 0.1 * attempt.predicted), now + MAX_LINGER_SECONDS)
            )

    def begin_pass(self) -> BlockedSizes:
        return SmallestBlocked(self)

    def note_blocked(self, request: Request, candidates: Sequence[Replica], now: float) -> float:
        """Registers for releases here, and earmarks room for a request that waits long.

        Releases by other processes and the end of an exclusive attempt are not announced, but polled for.
        """
        self._wait_for_room(request, candidates, now)
        if not self.ledger.cells.shared and not self.waits_for_exclusive:
            return INFINITY
        self.waits_for_exclusive = False
        pause = self.poll_delay
        self.poll_delay = min(2.0 * pause, MAX_POLL_SECONDS)
        return now + pause

    def is_blocked(self, request: Request) -> bool:
        return request.memory is not None and request.memory.blocked

    def _wait_for_room(self, request: Request, candidates: Sequence[Replica], now: float) -> None:
        need = self.prepare(request)
        need.blocked = True
        if not request.avoid and need.bytes != UNKNOWN_BYTES:
            self._last_blocked = (need.bytes, now + MIN_POLL_SECONDS, self.ledger.release_count)
        if 0.0 <= need.earmarked_at <= now - MAX_EARMARK_SECONDS:
            self.release_earmark(request)
            for replica in self._sample(candidates):
                if replica.residency is not None:
                    replica.residency.server.device.waiting[self.pool] = None
            return
        best: Device | None = None
        most = -1
        for replica in self._sample(candidates):
            place = replica.residency
            if place is None:
                continue
            device = place.server.device
            if self.pool in device.waiting and device is not need.earmark and best is not None:
                continue
            device.waiting[self.pool] = None
            if need.earmark is device:
                best, most = device, 1 << 62
            elif need.earmark is None and need.bytes != 0:
                room = self.ledger.free_bytes(device)
                if room > most and self._could_fit(need, place, now):
                    best, most = device, room
        if best is not None and (need.earmark is not None or now - request.arrived >= EARMARK_AFTER_SECONDS):
            self._earmark(request, need, best, now)

    def could_retry(self, request: Request, members: Sequence[Replica], failed: Replica, now: float) -> bool:
        need = self.prepare(request)
        others = [r for r in members if r is not failed and r not in request.avoid]
        return any(r.residency is None or self._could_fit(need, r.residency, now) for r in others)

    def _could_fit(self, need: MemoryRequirement, place: Residency, now: float) -> bool:
        """Would it go there if only there was room?"""
        if self._quarantines and self._is_quarantined(place.device, need.estimated_bytes, now):
            return False
        return self.ledger.max_request_bytes(place) - self.ledger.cells.external[place.device.index] >= need.bytes

    def _earmark(self, request: Request, need: MemoryRequirement, device: Device, now: float) -> None:
        if not self._respects_earmarks(device, request, now):
            return  # another was first
        if need.earmarked_at < 0.0:
            need.earmarked_at = now
        need.earmark, device.earmarked_for, device.earmarked_until = device, request, now + EARMARK_SECONDS
        self.ledger.cells.earmark(device.index, now + EARMARK_SECONDS)

    def _sample(self, candidates: Sequence[Replica]) -> Sequence[Replica]:
        """Of very many, others each time."""
        if len(candidates) <= MAX_FILTERED_CANDIDATES:
            return candidates
        self._sample_offset = (self._sample_offset + MAX_FILTERED_CANDIDATES) % len(candidates)
        return candidates[self._sample_offset : self._sample_offset + MAX_FILTERED_CANDIDATES]

    def release_earmark(self, request: Request) -> None:
        need = request.memory
        if need is not None and need.earmark is not None:
            device, need.earmark = need.earmark, None
            if device.earmarked_for is request:
                device.earmarked_for = None
                self.ledger.cells.earmark(device.index, 0.0)
                self.ledger.freed[device] = None

    def _respects_earmarks(self, device: Device, request: Request, now: float) -> bool:
        """Has no other request of at least its priority an earmark there?"""
        saver = device.earmarked_for
        if saver is not None and saver is not request:
            if saver.phase in (RequestPhase.DONE, RequestPhase.RUNNING) or now >= device.earmarked_until:
                device.earmarked_for = None
            elif saver.priority >= request.priority:
                return False
        cells = self.ledger.cells
        return not (cells.shared and cells.earmarked_by_another(device.index, now))

    def record_out_of_memory(self, attempt: Attempt, now: float) -> tuple[int, int] | None:
        if attempt.reservation is None:
            return None
        place, amount = attempt.reservation
        device = place.device
        believed = max(amount, 1)
        if device.capacity:
            available = device.capacity - (self.ledger.used(device) - amount)
        else:
            available = int(MIN_OOM_RAISE * believed)
        at_least = max(int(MIN_OOM_RAISE * believed), available)
        if amount:
            at_least = min(at_least, int(MAX_OOM_RAISE * believed))
        request = attempt.request
        self._raise_size(request.features, request.kind, at_least)
        return amount, at_least

    def record_crash(self, features: tuple[float, ...], kind: str, amount: int) -> int:
        at_least = int(MIN_OOM_RAISE * max(amount, 1))
        self._raise_size(features, kind, at_least)
        return at_least

    def _raise_size(self, features: tuple[float, ...], kind: str, at_least: int) -> None:
        self.request_size.record_out_of_memory(features, kind, at_least)
        self.unmeasured = False
        self.request_size.version += 1

    def quarantine(self, device: str, amount: int, until: float) -> None:
        entries = [entry for entry in self._quarantines.get(device, ()) if entry[0] != amount]
        self._quarantines[device] = [*entries, (amount, until)][-MAX_QUARANTINES_PER_DEVICE:]

    def _is_quarantined(self, device: Device, amount: int, now: float) -> bool:
        entries = self._quarantines.get(device.name)
        if not entries:
            return False
        if any(until <= now for _, until in entries):
            entries = self._quarantines[device.name] = [entry for entry in entries if entry[1] > now]
            if not entries:
                del self._quarantines[device.name]
        return any(amount >= least for least, _ in entries)
