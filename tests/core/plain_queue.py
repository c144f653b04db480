"""The queue as it is defined: each decision looks at all tenants. core/queue.py decides the same, looking at few."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from steelyard.core.request import INFINITY, Request

MAX_REMEMBERED_TENANTS = 1024  # ahead of the clock with nothing queued

Entry = tuple[float, int, Request]  # (latest start, arrival number, request): the number makes entries unique


class TenantQueue:
    __slots__ = ("entries", "name", "start_tag")

    def __init__(self, name: str, tag: float) -> None:
        self.name = name
        self.entries: list[Entry] = []
        self.start_tag = tag  # seconds of service had so far, on the class's clock


class PriorityClass:
    __slots__ = ("absent_tags", "clock", "tenants")

    def __init__(self) -> None:
        self.tenants: dict[str, TenantQueue] = {}
        self.clock = 0.0  # tag of the tenant served last
        self.absent_tags: dict[str, float] = {}  # tags of tenants ahead of the clock with nothing queued now

    def tenant(self, name: str) -> TenantQueue:
        tenant = self.tenants.get(name)
        if tenant is None:
            # A tenant that was away starts at the clock: no credit for silence, no escape from its debt.
            tag = max(self.clock, self.absent_tags.pop(name, 0.0))
            tenant = self.tenants[name] = TenantQueue(name, tag)
        return tenant

    def leave(self, tenant: TenantQueue) -> None:
        del self.tenants[tenant.name]
        if tenant.start_tag > self.clock:
            self.absent_tags[tenant.name] = tenant.start_tag
        if len(self.absent_tags) > MAX_REMEMBERED_TENANTS:
            self.absent_tags = {name: tag for name, tag in self.absent_tags.items() if tag > self.clock}
            while len(self.absent_tags) > MAX_REMEMBERED_TENANTS:
                del self.absent_tags[next(iter(self.absent_tags))]

    def ordered(self) -> Iterator[Request]:
        """In the order of service, if each were taken when reached."""
        if len(self.tenants) == 1:
            (tenant,) = self.tenants.values()
            for entry in tenant.entries:
                yield entry[2]
            return
        tags = {t.name: t.start_tag for t in self.tenants.values()}
        places = dict.fromkeys(tags, 0)
        while tags:
            name = min(tags, key=lambda n: (tags[n], self.tenants[n].entries[places[n]][:2]))
            entries = self.tenants[name].entries
            request = entries[places[name]][2]
            yield request
            places[name] += 1
            tags[name] += request.base
            if places[name] == len(entries):
                del tags[name]


class RequestQueue:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.work = 0.0  # seconds on a typical replica of all that waits
        self.classes: dict[int, PriorityClass] = {}
        self._priorities: list[int] = []  # highest first
        self._entries: dict[Request, Entry] = {}
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
            klass = self.classes[request.priority] = PriorityClass()
        tenant = klass.tenant(request.fair_share_key)
        self._arrivals += 1
        entry = (request.expires, self._arrivals, request)
        entries = tenant.entries
        if not entries or entries[-1][0] <= entry[0]:
            entries.append(entry)
        else:
            insort(entries, entry)
        self._entries[request] = entry
        self.work += request.base

    def remove(self, request: Request, served: bool = False) -> None:
        """`served`: it goes to a replica, and its tenant has had its turn."""
        entry = self._entries.pop(request)
        klass = self.classes[request.priority]
        tenant = klass.tenants[request.fair_share_key]
        entries = tenant.entries
        if entries[0] is entry:
            del entries[0]
        else:
            del entries[bisect_left(entries, entry)]
        self.work = self.work - request.base if self._entries else 0.0
        if served:
            klass.clock = tenant.start_tag
            tenant.start_tag += request.base
        if not entries:
            klass.leave(tenant)
            if not klass.tenants:
                del self.classes[request.priority]
                self._priorities = sorted(self.classes, reverse=True)

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
        longest = max(tenants.values(), key=lambda t: len(t.entries))
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
        places = sum(len(tenant.entries) for tenant in klass.tenants.values())
        return len(klass.tenants[request.fair_share_key].entries) * len(klass.tenants) >= places

    def next_expiry(self) -> float:
        first = INFINITY
        for klass in self.classes.values():
            for tenant in klass.tenants.values():
                if tenant.entries[0][0] < first:
                    first = tenant.entries[0][0]
        return first

    def expired(self, now: float) -> list[Request]:
        """Requests whose time is up, soonest first; they are still queued."""
        out: list[Entry] = []
        for klass in self.classes.values():
            for tenant in klass.tenants.values():
                entries = tenant.entries
                # (now, inf) sorts after every entry that expires at or before now
                out.extend(entries[: bisect_left(entries, (now, INFINITY))])
        out.sort(key=lambda entry: entry[:2])
        return [entry[2] for entry in out]
