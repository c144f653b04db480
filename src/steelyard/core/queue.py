"""The queue of one model: bounded, urgent first, fair between tenants.

Idea: higher priority first; inside a priority, the tenant with the least service so far; inside a tenant, earliest
latest start (`expires`) first, then arrival.

Formula: start-time fair queueing. A tenant's tag starts at max(own tag, the class's clock) and grows by the predicted
seconds of each request served; the least tag goes next, and the clock is the tag last served.

Source: Goyal, Vin and Cheng, "Start-time Fair Queueing", SIGCOMM 1996.

Limits: fairness is in predicted seconds, and tenants are what the driver names. When full, a newcomer displaces a
request of lower priority, or of the tenant that holds most of the queue; else it is rejected.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from .request import INFINITY, Request

MAX_REMEMBERED_TENANTS = 1024  # ahead of the clock with nothing queued
MIN_STALE_ENTRIES = 64  # of a heap, before it is built anew without them

Entry = tuple[float, int, Request]  # (latest start, arrival number, request): the number makes entries unique
# (tag, latest start, arrival number, tenant, place among its entries): which of the tenants' requests goes next.
Turn = tuple[float, float, int, "_TenantQueue", int]


class _TenantQueue:
    __slots__ = ("entries", "name", "start_tag", "turn")

    def __init__(self, name: str, tag: float) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self.start_tag = tag  # seconds of service had so far, on the class's clock
        self.turn: Turn | None = None  # of its first entry, as it is in the class's `turns`


class _PriorityClass:
    __slots__ = ("absent_tags", "by_tag", "clock", "size", "tenants", "turns")

    def __init__(self) -> None:
        self.tenants: dict[str, _TenantQueue] = {}
        self.turns: list[Turn] = []  # sorted, one for each of several tenants: kept up, so that no pass looks at all
        self.size = 0  # requests
        self.clock = 0.0  # tag of the tenant served last
        self.absent_tags: dict[str, float] = {}  # tags of tenants ahead of the clock with nothing queued now
        self.by_tag: list[tuple[float, str]] = []  # a heap of those; what is in `absent_tags` no more is stale

    def tenant(self, name: str) -> _TenantQueue:
        tenant = self.tenants.get(name)
        if tenant is None:
            if len(self.tenants) == 1:
                (only,) = self.tenants.values()
                self._insert_turn(only)
            # A tenant that was away starts at the clock: no credit for silence, no escape from its debt.
            tag = max(self.clock, self.absent_tags.pop(name, 0.0))
            tenant = self.tenants[name] = _TenantQueue(name, tag)
        return tenant

    def _insert_turn(self, tenant: _TenantQueue) -> None:
        first = tenant.entries[0]
        tenant.turn = turn = (tenant.start_tag, first[0], first[1], tenant, 0)
        insort(self.turns, turn)

    def _delete_turn(self, tenant: _TenantQueue) -> None:
        if tenant.turn is not None:
            del self.turns[bisect_left(self.turns, tenant.turn)]
            tenant.turn = None

    def renew_turn(self, tenant: _TenantQueue) -> None:
        """Its tag or its first entry changed. One tenant alone needs no turns."""
        if len(self.tenants) > 1:
            self._delete_turn(tenant)
            self._insert_turn(tenant)

    def leave(self, tenant: _TenantQueue) -> None:
        del self.tenants[tenant.name]
        self._delete_turn(tenant)
        if len(self.tenants) == 1:
            (only,) = self.tenants.values()
            self._delete_turn(only)
        if self.tenants and tenant.start_tag > self.clock:
            self.absent_tags[tenant.name] = tenant.start_tag
            self._forget_absent(tenant)

    def _forget_absent(self, newest: _TenantQueue) -> None:
        tags, heap = self.absent_tags, self.by_tag
        heappush(heap, (newest.start_tag, newest.name))
        if len(tags) > MAX_REMEMBERED_TENANTS:
            while heap and heap[0][0] <= self.clock:
                tag, name = heappop(heap)
                if tags.get(name) == tag:
                    del tags[name]
            while len(tags) > MAX_REMEMBERED_TENANTS:
                del tags[next(iter(tags))]
        if len(heap) > 2 * len(tags) + MIN_STALE_ENTRIES:
            self.by_tag = [(tag, name) for name, tag in tags.items()]
            heapify(self.by_tag)

    def ordered(self) -> Iterator[Request]:
        """In the order of service, if each were taken when reached."""
        if len(self.tenants) == 1:
            (tenant,) = self.tenants.values()
            for entry in tenant.entries:
                yield entry[2]
            return
        turns = self.turns
        later: list[Turn] = []  # a heap: of tenants that had a turn in this pass, the next
        reached = 0
        while later or reached < len(turns):
            if not later or (reached < len(turns) and turns[reached] < later[0]):
                tag, _, _, tenant, place = turns[reached]
                reached += 1
            else:
                tag, _, _, tenant, place = heappop(later)
            entries = tenant.entries
            request = entries[place][2]
            yield request
            place += 1
            if place < len(entries):
                following = entries[place]
                heappush(later, (tag + request.base, following[0], following[1], tenant, place))


class RequestQueue:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.work = 0.0  # seconds on a typical replica of all that waits
        self.classes: dict[int, _PriorityClass] = {}
        self._priorities: list[int] = []  # highest first
        self._entries: dict[Request, Entry] = {}
        self._by_expiry: list[Entry] = []  # a heap; what is in `_entries` no more is stale
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request: Request) -> bool:
        return request in self._entries

    def add(self, request: Request) -> None:
        """The caller has made room (`full`, `preemption_victim`)."""
        klass = self.classes.get(request.priority)
        if klass is None:
            self._priorities = sorted([*self.classes, request.priority], reverse=True)
            klass = self.classes[request.priority] = _PriorityClass()
        tenant = klass.tenant(request.fair_share_key)
        self._arrivals += 1
        entry = (request.expires, self._arrivals, request)
        entries = tenant.entries
        if not entries or entries[-1][0] <= entry[0]:
            entries.append(entry)
        else:
            insort(entries, entry)
        klass.size += 1
        if entries[0][1] == entry[1]:
            klass.renew_turn(tenant)
        self._entries[request] = entry
        heappush(self._by_expiry, entry)
        self.work += request.base

    def remove(self, request: Request, served: bool = False) -> None:
        """`served`: it goes to a replica, and its tenant has had its turn."""
        entry = self._entries.pop(request)
        klass = self.classes[request.priority]
        tenant = klass.tenants[request.fair_share_key]
        entries = tenant.entries
        klass.size -= 1
        first = entries[0][1] == entry[1]
        if first:
            del entries[0]
        else:
            del entries[bisect_left(entries, entry)]
        self._drop_stale()
        self.work = self.work - request.base if self._entries else 0.0
        if served:
            klass.clock = tenant.start_tag
            tenant.start_tag += request.base
        if not entries:
            klass.leave(tenant)
            if not klass.tenants:
                del self.classes[request.priority]
                self._priorities = sorted(self.classes, reverse=True)
        elif first or served:
            klass.renew_turn(tenant)

    def _drop_stale(self) -> None:
        heap, entries = self._by_expiry, self._entries
        if len(heap) > 2 * len(entries) + MIN_STALE_ENTRIES:
            self._by_expiry = list(entries.values())
            heapify(self._by_expiry)

    def ordered(self) -> Iterator[Request]:
        """In the order they should go. The queue must not change meanwhile."""
        for priority in self._priorities:
            yield from self.classes[priority].ordered()

    @property
    def oldest_arrival(self) -> float:
        """Of the longest-queued request; the queue is not empty."""
        return next(iter(self._entries)).arrived

    @property
    def full(self) -> bool:
        return len(self._entries) >= self.limit

    def preemption_victim(self, request: Request) -> Request | None:
        """The last of the lowest priority below the newcomer's; else, in its own priority, of the tenant that holds
        most of the queue, if at least two more than the newcomer's tenant."""
        if not self._priorities or self._priorities[-1] > request.priority:
            return None
        lowest = self._priorities[-1]
        tenants = self.classes[lowest].tenants
        longest = next(iter(tenants.values()))
        for tenant in tenants.values():
            if len(tenant.entries) > len(longest.entries):
                longest = tenant
        if lowest == request.priority:
            own = tenants.get(request.fair_share_key)
            if len(longest.entries) < (len(own.entries) if own else 0) + 2:
                return None
        return longest.entries[-1][2]

    def tenant_at_fair_share(self, request: Request) -> bool:
        """Does its tenant, among several, hold its fair share of the priority's places?"""
        klass = self.classes.get(request.priority)
        if klass is None or len(klass.tenants) < 2 or request.fair_share_key not in klass.tenants:
            return False
        return len(klass.tenants[request.fair_share_key].entries) * len(klass.tenants) >= klass.size

    def next_expiry(self) -> float:
        heap = self._by_expiry
        while heap and not self._is_queued(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else INFINITY

    def _is_queued(self, entry: Entry) -> bool:
        known = self._entries.get(entry[2])
        return known is not None and known[1] == entry[1]

    def expired(self, now: float) -> list[Request]:
        """Requests whose time is up, soonest first; they are still queued."""
        heap = self._by_expiry
        out: list[Entry] = []
        looked_at = [0]  # places in the heap: below an entry, at twice its place, is none that is sooner
        for place in looked_at:
            if place < len(heap) and heap[place][0] <= now:
                if self._is_queued(heap[place]):
                    out.append(heap[place])
                looked_at.append(2 * place + 1)
                looked_at.append(2 * place + 2)
        out.sort()
        return [entry[2] for entry in out]
