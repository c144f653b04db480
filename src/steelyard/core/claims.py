"""The claims of one model's requests on memory: what each needs, where there is room, and for whom room is saved up.

Memory is a filter before the policy: only replicas whose device has room now are candidates. A large request that has
waited for long gets room saved up for it: until it goes, smaller ones that would take what was just freed wait too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .memory import SAVING, Device, Ledger, Place, Server
from .request import INFINITY, Phase
from .request_bytes import RequestBytes, RequestBytesState

if TYPE_CHECKING:
    from .pool import Pool
    from .replica import Replica
    from .request import Flight, Request

ALONE = -1  # bytes of a request of which nobody knows what it needs: it runs alone on its device
FILTERED = 64  # candidates that are all looked at before the policy chooses; of more, the choice is looked at
PATIENT = 0.25  # seconds that a request waits for room before room is saved up for it
SAVES = 5.0  # seconds for which that is done: if it has not helped by then, it will not
LINGERS = 2.0  # times as long as predicted: then a request that was cut off is over in its server too
LONGEST = 30.0  # seconds that it counts at the most
SOONEST, LATEST = 0.002, 0.016  # seconds between looks for room that another process may have given back
RAISED = 1.25  # times what was believed, at least, after a request ran out of memory
RAISED_MOST = 4.0  # … and at most: it may have been another's fault
QUARANTINES = 64
SOLOS = 256  # requests at most that have a server to themselves to be measured, of one model in one worker
SOLO = 1.0  # seconds for which one has
KINDS = 64  # of requests that are told apart
SILENT = 16  # answers without a measurement after which none is expected


class Claim:
    """What one request needs, and how it fares. Made when it is submitted."""

    __slots__ = ("blocked", "bytes", "needs", "saving", "saving_since", "solo", "taken", "version")

    def __init__(self) -> None:
        self.bytes = 0  # or ALONE
        self.needs = 0  # as far as one can say
        self.solo = False  # it should have its server to itself, to be measured
        self.version = -1  # of what is known, when that was said
        self.blocked = False  # there was no room for it when it was last looked at
        self.saving: Device | None = None  # where room is saved up for it, …
        self.saving_since = -1.0  # … and since when; -1: it has not been
        self.taken = 0  # reserved for the attempt that is about to be sent


class Blocked:
    """What did not fit in one pass over a waiting line: what is as large need not be looked at again."""

    __slots__ = ("_alone", "_least")

    def __init__(self) -> None:
        self._least = INFINITY
        self._alone = False

    def covers(self, request: Request, claims: Claims) -> bool:
        claim = claims.prepare(request)
        if request.avoid or request.priority or claim.saving is not None:
            return False  # it may go where others may not
        covered = self._alone if claim.bytes == ALONE else claim.bytes >= self._least
        claim.blocked = covered
        return covered

    def note(self, request: Request) -> None:
        claim = request.claim
        if claim is None or not claim.blocked or request.avoid or request.priority:
            return
        if claim.bytes == ALONE:
            self._alone = True
        else:
            self._least = min(self._least, claim.bytes)


class Claims:
    """Of one pool."""

    def __init__(self, pool: Pool, ledger: Ledger, sizes: RequestBytes) -> None:
        self.pool = pool
        self.ledger = ledger
        self.sizes = sizes
        self.footprint = 0
        self.unmeasured = False  # nobody will ever say what requests need: they count as nothing
        self.measured = 0  # answers that said it
        self._silent = 0  # answers that did not, before any did
        self._solos = 0  # requests that had a server to themselves, to be measured
        self.waits_for_solo = False  # somebody could not go because of that
        self._silent_kinds: dict[str, int] = {}  # of those that ran alone because nothing is known of them, by kind
        self._turn = 0
        self._full = (0, -INFINITY, 0)  # what found no room anywhere, until when that counts, and as of which give
        self.pause = SOONEST  # until the next look for room, where others may give it back
        self._surely = -1  # what fits somewhere when nothing else runs, as last worked out
        self._looked = -INFINITY
        self._quarantines: dict[str, list[tuple[int, float]]] = {}  # device → (bytes, until)

    # ------------------------------------------------------------------ what is needed

    def prepare(self, request: Request) -> Claim:
        claim = request.claim
        if claim is None:
            claim = request.claim = Claim()
        if claim.version != self.sizes.version:
            claim.version = self.sizes.version
            claim.needs = self.sizes.needs(request.features, request.kind)
            claim.solo = False
            if not self.sizes.known:
                claim.bytes = 0 if self.unmeasured else ALONE
            elif self._is_guessed(request):
                claim.bytes = ALONE
            else:
                claim.bytes, claim.solo = claim.needs, self._is_to_be_measured(request)
        return claim

    def _is_guessed(self, request: Request) -> bool:
        """Is nothing known of one so large? Then it runs alone: that is safe, and it is measured, so the next is known.

        Where such are not measured all the same, they must be believed.
        """
        if self._silent_kinds.get(request.kind, 0) >= SILENT:
            return False
        return self.sizes.guesses(request.features, request.kind)

    def _is_to_be_measured(self, request: Request) -> bool:
        """Is too little known of its kind to tell sizes apart? Then it should have its server to itself, which is when
        it can be measured. For a while only, and not where such are not measured all the same."""
        kind = request.kind
        return self._solos < SOLOS and self._silent_kinds.get(kind, 0) < SILENT and self.sizes.is_learning(kind)

    def declare(self, sizes: RequestBytes) -> None:
        """Something else is declared of its requests: where to begin again. All else stays."""
        sizes.version = self.sizes.version + 1
        self.sizes = sizes
        self._surely = -1

    def learn(self, footprint: int, state: RequestBytesState, unmeasured: bool) -> None:
        """What was learned elsewhere."""
        self.sizes.take_over(state)
        self.unmeasured = unmeasured and not self.sizes.known
        self.footprint = footprint
        for replica in self.pool.replicas.values():
            if replica.place is not None:
                replica.place.footprint = footprint
        self._surely = -1

    def answered(self, request: Request, told: bool) -> None:
        """An answer came, and said what its request needed, or did not."""
        claim, kind = request.claim, request.kind
        if told:
            self.measured += 1
            self._silent = 0
            self._silent_kinds.pop(kind, None)
        elif self.measured or self.sizes.known:
            if (
                claim is not None
                and (claim.solo or claim.bytes == ALONE)
                and (kind in self._silent_kinds or len(self._silent_kinds) < KINDS)
            ):
                self._silent_kinds[kind] = self._silent_kinds.get(kind, 0) + 1
        else:
            self._silent += 1
            if self._silent >= SILENT and not self.unmeasured:
                self.unmeasured = True
                self.sizes.version += 1

    def never(self, request: Request, now: float) -> tuple[int, int, str] | None:
        """It fits nowhere, whatever else is moved away: what it needs, the most there is for one, and where."""
        claim = self.prepare(request)
        if claim.bytes <= 0:
            return None  # it needs nothing, or nobody knows
        if claim.bytes <= self._surely and now - self._looked < 1.0:
            return None
        best, where = -1, ""
        stays: dict[Device, int] = {}
        for replica in self.pool.replicas.values():
            place = replica.place
            most = INFINITY if place is None or not place.device.capacity else self.ledger.most(place, stays)
            if most > best:
                best, where = int(min(most, 1 << 62)), place.device.name if place is not None else ""
        self._surely, self._looked = best, now
        if not self.pool.replicas or claim.bytes <= best:
            return None  # nobody is there to say, or it fits
        return claim.bytes, max(best, 0), where

    # ------------------------------------------------------------------ where there is room

    def with_room(self, request: Request, candidates: Sequence[Replica], now: float) -> Sequence[Replica]:
        """Those of the candidates that have room for it now; of very many, all of them: `take` will tell."""
        claim = self.prepare(request)
        claim.blocked = False
        if len(candidates) > FILTERED:
            return () if self._was_full(request, claim, now) else candidates
        seen: dict[Device, tuple[int, int]] = {}
        return [r for r in candidates if r.place is None or self._fits(request, claim, r.place, now, seen)]

    def _was_full(self, request: Request, claim: Claim, now: float) -> bool:
        """Did one as large find no room anywhere a moment ago, and nothing was given back since? To look at a thousand
        devices for each request would take longer than to serve it."""
        least, until, given = self._full
        if request.avoid or request.priority or claim.saving is not None or claim.bytes == ALONE:
            return False
        return claim.bytes >= least and now < until and given == self.ledger.given

    def fits(self, request: Request, replica: Replica, now: float) -> bool:
        return replica.place is None or self._fits(request, self.prepare(request), replica.place, now)

    def _fits(
        self,
        request: Request,
        claim: Claim,
        place: Place,
        now: float,
        seen: dict[Device, tuple[int, int]] | None = None,
    ) -> bool:
        """`seen`: looks at devices, one of each for many places."""
        device = place.server.device
        if not self._may_go(request, claim, place.server, now):
            return False
        if claim.bytes == ALONE and device.capacity:
            return not self.ledger.cells.count(device.index)
        if seen is None:
            return self.ledger.fits(place, max(claim.bytes, 0))
        look = seen.get(device)
        if look is None:
            look = seen[device] = self.ledger.look(device)
        return self.ledger.fits(place, max(claim.bytes, 0), look)

    def take(self, request: Request, replica: Replica, now: float) -> bool:
        """Reserve what it needs there, for the attempt that is sent next. False: there is no room after all."""
        place, claim = replica.place, self.prepare(request)
        if place is None:
            return True
        device = place.server.device
        if not self._may_go(request, claim, place.server, now):
            return False
        if claim.bytes == ALONE and device.capacity:
            claim.taken = self.ledger.take_all(place)
            taken = claim.taken > 0
        else:
            claim.taken = max(claim.bytes, 0)
            taken = self.ledger.take(place, claim.taken)
        if taken:
            claim.blocked = False
            self.pause = SOONEST
            self.stop_saving(request)
        return taken

    def _may_go(self, request: Request, claim: Claim, server: Server, now: float) -> bool:
        """Apart from room: is nobody saving up there, nobody to be measured alone, and its size not kept away?"""
        device = server.device
        if not self._may_take(device, request, now) or not self._may_join(claim, server, now):
            return False
        return not (self._quarantines and self._is_quarantined(device, claim.needs, now))

    def _may_join(self, claim: Claim, server: Server, now: float) -> bool:
        """Has nobody the server to itself, and is it idle if this one should have it so?"""
        if server.solo is not None and now < server.solo_until:
            self.waits_for_solo = True
            return False
        if claim.solo and self.ledger.is_busy(server):
            self.waits_for_solo = True
            return False
        return True

    def hold(self, flight: Flight, now: float) -> None:
        """The attempt is sent: what was taken for it is its own."""
        place, claim = flight.replica.place, flight.request.claim
        if place is not None and claim is not None:
            flight.hold = (place, claim.taken)
            if claim.solo:
                self._solos += 1
                place.server.solo, place.server.solo_until = flight, now + SOLO

    def give_back(self, flight: Flight, now: float, *, over: bool) -> None:
        """The attempt has ended here. Not `over`: its server was not heard to end it, and may go on for a while."""
        if flight.hold is None:
            return
        place, amount = flight.hold
        flight.hold = None
        if place.server.solo is flight:
            place.server.solo = None
            self.ledger.freed[place.server.device] = None
        until = flight.started + LINGERS * flight.predicted
        if over:
            self.ledger.give(place, amount)
        else:
            self.ledger.give_later(place, amount, min(max(until, now + 0.1 * flight.predicted), now + LONGEST))

    # ------------------------------------------------------------------ waiting

    def blocked(self, request: Request, candidates: Sequence[Replica], now: float) -> None:
        """There is no room for it now: hear of it when there is, and save up for it if it has waited for long."""
        claim = self.prepare(request)
        claim.blocked = True
        if not request.avoid and claim.bytes != ALONE:
            self._full = (claim.bytes, now + SOONEST, self.ledger.given)
        if 0.0 <= claim.saving_since <= now - SAVES:
            self.stop_saving(request)
            for replica in self._some(candidates):
                if replica.place is not None:
                    replica.place.server.device.waiting[self.pool] = None
            return
        best: Device | None = None
        most = -1
        for replica in self._some(candidates):
            place = replica.place
            if place is None:
                continue
            device = place.server.device
            if self.pool in device.waiting and device is not claim.saving and best is not None:
                continue
            device.waiting[self.pool] = None
            if claim.saving is device:
                best, most = device, 1 << 62
            elif claim.saving is None and claim.bytes != 0:
                room = self.ledger.room(device)
                if room > most and self._could_go(claim, place, now):
                    best, most = device, room
        if best is not None and (claim.saving is not None or now - request.arrived >= PATIENT):
            self._save(request, claim, best, now)

    def could_go(self, request: Request, replica: Replica, now: float) -> bool:
        """Would it go there if only there was room?"""
        return replica.place is None or self._could_go(self.prepare(request), replica.place, now)

    def _could_go(self, claim: Claim, place: Place, now: float) -> bool:
        if self._quarantines and self._is_quarantined(place.device, claim.needs, now):
            return False
        return self.ledger.most(place) - self.ledger.cells.other(place.device.index) >= claim.bytes

    def _save(self, request: Request, claim: Claim, device: Device, now: float) -> None:
        if not self._may_take(device, request, now):
            return  # another was first
        if claim.saving_since < 0.0:
            claim.saving_since = now
        claim.saving, device.saver, device.saved_until = device, request, now + SAVING
        self.ledger.cells.save(device.index, now + SAVING)

    def _some(self, candidates: Sequence[Replica]) -> Sequence[Replica]:
        """Of very many, others each time."""
        if len(candidates) <= FILTERED:
            return candidates
        self._turn = (self._turn + FILTERED) % len(candidates)
        return candidates[self._turn : self._turn + FILTERED]

    def look_in(self) -> float:
        """Seconds until the next look for room: longer each time that there is none."""
        pause = self.pause
        self.pause = min(2.0 * pause, LATEST)
        return pause

    def stop_saving(self, request: Request) -> None:
        claim = request.claim
        if claim is not None and claim.saving is not None:
            device, claim.saving = claim.saving, None
            if device.saver is request:
                device.saver = None
                self.ledger.cells.save(device.index, 0.0)
                self.ledger.freed[device] = None

    def _may_take(self, device: Device, request: Request, now: float) -> bool:
        """Is nobody else saving up there? Who is more urgent need not care."""
        saver = device.saver
        if saver is not None and saver is not request:
            if saver.phase in (Phase.DONE, Phase.RUNNING) or now >= device.saved_until:
                device.saver = None
            elif saver.priority >= request.priority:
                return False
        cells = self.ledger.cells
        return not (cells.shared and cells.saved_by_another(device.index, now))

    # ------------------------------------------------------------------ out of memory

    def ran_out(self, flight: Flight, now: float) -> tuple[int, int] | None:
        """An attempt ran out of memory. What was reserved for it, and how much was there for it, so it needs more.

        From now on such requests are believed to need more than that.
        """
        if flight.hold is None:
            return None
        place, amount = flight.hold
        device = place.device
        believed = max(amount, 1)
        if device.capacity:
            available = device.capacity - (self.ledger.taken(device) - amount)
        else:
            available = int(RAISED * believed)
        at_least = max(int(RAISED * believed), available)
        if amount:
            at_least = min(at_least, int(RAISED_MOST * believed))
        request = flight.request
        self._raise(request.features, request.kind, at_least)
        return amount, at_least

    def raise_for(self, features: tuple[float, ...], kind: str, amount: int) -> int:
        """A server crashed with such a request, which had so much reserved. What it is believed to need from now on."""
        at_least = int(RAISED * max(amount, 1))
        self._raise(features, kind, at_least)
        return at_least

    def _raise(self, features: tuple[float, ...], kind: str, at_least: int) -> None:
        self.sizes.ran_out(features, kind, at_least)
        self.unmeasured = False
        self.sizes.version += 1

    def quarantine(self, device: str, amount: int, until: float) -> None:
        """Requests that need at least so much are kept from the device until then."""
        entries = [entry for entry in self._quarantines.get(device, ()) if entry[0] != amount]
        self._quarantines[device] = [*entries, (amount, until)][-QUARANTINES:]

    def _is_quarantined(self, device: Device, amount: int, now: float) -> bool:
        entries = self._quarantines.get(device.name)
        if not entries:
            return False
        if any(until <= now for _, until in entries):
            entries = self._quarantines[device.name] = [entry for entry in entries if entry[1] > now]
            if not entries:
                del self._quarantines[device.name]
        return any(amount >= least for least, _ in entries)
