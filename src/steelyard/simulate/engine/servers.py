"""Simulated replicas: work arrives, takes its time, and ends.

`SlotServer` runs up to `slots` requests at full speed and queues the rest. `BatchServer` slows all down by the batching
curve: n at once each run at speed / slowdown(n).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import takewhile
from math import prod

from ..scenario.schema import ReplicaGroup
from .job import Job

Schedule = Callable[[float, Job], None]


class PrefixCache:
    """An LRU cache of context blocks. Only a leading run of hits counts."""

    def __init__(self, blocks: int) -> None:
        self._size = blocks
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def touch(self, prefix: Sequence[int]) -> int:
        """The number of leading blocks that were there; all of them are afterwards."""
        held = self.blocks
        hits = len(list(takewhile(held.__contains__, prefix)))
        for block in reversed(prefix):  # the front, which is shared most, ends up most recent
            held[block] = None
            held.move_to_end(block)
        while len(held) > self._size:
            held.popitem(last=False)
        return hits


class ModelMemory:
    """The models a replica holds, least recently used out first; loading takes time."""

    def __init__(self, models: int, load_seconds: float) -> None:
        self._size = models
        self._load_seconds = load_seconds
        self.resident: OrderedDict[str, None] = OrderedDict()
        self.loads = 0

    def touch(self, kind: str) -> float:
        """Seconds until the model is there."""
        cold = kind not in self.resident
        self.resident[kind] = None
        self.resident.move_to_end(kind)
        if len(self.resident) > self._size:
            self.resident.popitem(last=False)
        self.loads += cold
        return self._load_seconds if cold else 0.0


class ServerBase(ABC):
    """Identity, speed over time, and what makes a request shorter or longer here."""

    def __init__(
        self, id: str, speed: float, slots: int, cache: PrefixCache | None, memory: ModelMemory | None
    ) -> None:
        self.id = id
        self.speed = speed
        self.slots = slots
        self.cache = cache
        self.memory = memory
        self.full_speed = speed
        self.slowdowns: list[float] = []  # factors
        self.down = 0  # outages it is in
        self.failing = 0  # faults that make it answer with errors
        self.queue: deque[Job] = deque()  # its own, behind the slots
        self.served = 0

    @abstractmethod
    def accept(self, job: Job, now: float, schedule: Schedule) -> None: ...

    @abstractmethod
    def ended(self, job: Job, now: float, schedule: Schedule) -> None:
        """What it scheduled for now has happened."""

    @abstractmethod
    def abandon(self, job: Job, now: float, schedule: Schedule) -> None: ...

    @property
    @abstractmethod
    def busy(self) -> int: ...

    @abstractmethod
    def clear(self) -> list[Job]:
        """Everything here is lost."""

    @abstractmethod
    def set_speed(self, speed: float, now: float, schedule: Schedule) -> None: ...

    def slow_down(self, factor: float, now: float, schedule: Schedule) -> None:
        self.slowdowns.append(factor)
        self.set_speed(self.full_speed / prod(self.slowdowns), now, schedule)

    def restore_speed(self, factor: float, now: float, schedule: Schedule) -> None:
        self.slowdowns.remove(factor)
        self.set_speed(self.full_speed / prod(self.slowdowns), now, schedule)

    def _lose(self, running: Iterable[Job]) -> list[Job]:
        if self.cache is not None:
            self.cache.blocks.clear()
        if self.memory is not None:
            self.memory.resident.clear()
        lost = [*running, *self.queue]
        self.queue.clear()
        for job in lost:
            job.finish = -1.0
        return lost

    def _true_work(self, job: Job) -> float:
        work = job.work
        if self.cache is not None and job.prefix:
            work = max(work - job.saved_per_block * self.cache.touch(job.prefix), 1e-6)
        if self.memory is not None:
            work += self.memory.touch(job.kind) * self.speed
        return work


class SlotServer(ServerBase):
    def __init__(
        self, id: str, speed: float, slots: int = 1, cache: PrefixCache | None = None, memory: ModelMemory | None = None
    ) -> None:
        super().__init__(id, speed, slots, cache, memory)
        self._plain = self.cache is None and self.memory is None
        self._running: dict[Job, None] = {}

    def accept(self, job: Job, now: float, schedule: Schedule) -> None:
        if len(self._running) < self.slots:
            self._start(job, now, schedule)
        else:
            self.queue.append(job)

    def _start(self, job: Job, now: float, schedule: Schedule) -> None:
        work = job.work if self._plain else self._true_work(job)
        job.finish = finish = now + work / self.speed
        self._running[job] = None
        schedule(finish, job)

    def ended(self, job: Job, now: float, schedule: Schedule) -> None:
        """The attempt ran to its end: free its place, start the next."""
        del self._running[job]
        self.served += 1
        if self.queue:
            self._start(self.queue.popleft(), now, schedule)

    def abandon(self, job: Job, now: float, schedule: Schedule) -> None:
        """The balancer cancelled the attempt."""
        job.finish = -1.0
        if job in self._running:
            del self._running[job]
            if self.queue:
                self._start(self.queue.popleft(), now, schedule)
        else:
            self.queue.remove(job)

    @property
    def busy(self) -> int:
        return len(self._running)

    def clear(self) -> list[Job]:
        """Crash: everything here is lost."""
        lost = self._lose(self._running)
        self._running.clear()
        return lost

    def set_speed(self, speed: float, now: float, schedule: Schedule) -> None:
        for job in self._running:
            job.finish = now + (job.finish - now) * self.speed / speed
            schedule(job.finish, job)
        self.speed = speed


class BatchServer(ServerBase):
    """One virtual clock of attained work serves all requests: the next to finish is the one with the least virtual
    finish, so an arrival or departure moves one event, not n."""

    def __init__(
        self,
        id: str,
        speed: float,
        slots: int,
        slowdown: Callable[[int], float],
        cache: PrefixCache | None = None,
        memory: ModelMemory | None = None,
    ) -> None:
        super().__init__(id, speed, slots, cache, memory)
        self._slowdown = slowdown
        self._attained = 0.0  # by a request that has been here from the start
        self._stamp = 0.0
        self._heap: list[tuple[float, int, Job]] = []
        self._count = 0
        self._gone: set[Job] = set()  # cancelled, still in the heap
        self._live = 0
        self._next: Job | None = None  # the one whose finish is scheduled

    def _advance(self, now: float) -> None:
        if self._live:
            self._attained += (now - self._stamp) * self.speed / self._slowdown(self._live)
        self._stamp = now

    def _plan(self, now: float, schedule: Schedule) -> None:
        heap = self._heap
        while heap and heap[0][2] in self._gone:
            self._gone.discard(heappop(heap)[2])
        if heap:
            left, _, job = heap[0]
            if self._next is not None and self._next is not job:
                self._next.finish = -1.0  # overtaken by a shorter one
            self._next = job
            seconds = max(0.0, (left - self._attained) * self._slowdown(self._live) / self.speed)
            job.finish = now + seconds
            schedule(job.finish, job)

    def accept(self, job: Job, now: float, schedule: Schedule) -> None:
        if self._live >= self.slots:
            self.queue.append(job)
            return
        self._advance(now)
        self._join(job)
        self._plan(now, schedule)

    def _join(self, job: Job) -> None:
        self._count += 1
        job.finish = -1.0
        heappush(self._heap, (self._attained + self._true_work(job), self._count, job))
        self._live += 1

    def ended(self, job: Job, now: float, schedule: Schedule) -> None:
        self._advance(now)
        heappop(self._heap)
        self._next = None
        self._live -= 1
        self.served += 1
        if self.queue:
            self._join(self.queue.popleft())
        self._plan(now, schedule)

    def abandon(self, job: Job, now: float, schedule: Schedule) -> None:
        if job in self.queue:
            self.queue.remove(job)
            return
        self._advance(now)
        job.finish = -1.0
        self._gone.add(job)
        self._live -= 1
        if self.queue:
            self._join(self.queue.popleft())
        self._plan(now, schedule)

    @property
    def busy(self) -> int:
        return self._live

    def clear(self) -> list[Job]:
        lost = self._lose(job for _, _, job in self._heap if job not in self._gone)
        self._heap.clear()
        self._gone.clear()
        self._next = None
        self._live = 0
        return lost

    def set_speed(self, speed: float, now: float, schedule: Schedule) -> None:
        self._advance(now)
        self.speed = speed
        self._plan(now, schedule)


Server = ServerBase


def make_server(id: str, group: ReplicaGroup, *, loads_itself: bool = True) -> Server:
    """One replica of a group. Not `loads_itself`: a placer decides which models it holds."""
    cache = PrefixCache(group.prefix_blocks) if group.prefix_blocks else None
    memory = ModelMemory(group.models, group.load_time) if group.models and loads_itself else None
    if group.batching is not None:
        return BatchServer(id, group.speed, group.slots, group.batching, cache, memory)
    return SlotServer(id, group.speed, group.slots, cache, memory)
