"""A small queue with replicas that start slowly, to see what a scaler makes of a load."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from random import Random

from steelyard.core.request import INFINITY
from steelyard.core.scalers import ScalingMetrics
from steelyard.core.scaling.decider import ScalingDecider, ScalingOptions


@dataclass
class Toy:
    """`load(t)`: requests per second. `work`: seconds of one, on average; exponential unless `equal`."""

    load: object
    work: float = 0.1
    cold_start: float = 3.0
    equal: bool = False
    slo_seconds: float = INFINITY
    options: ScalingOptions = field(default_factory=ScalingOptions)
    seed: int = 1
    start: int = 1

    def __post_init__(self):
        self.rng = Random(self.seed)
        self.scaling = ScalingDecider(self.options)
        self.idle = self.start  # free servers
        self.to_leave = 0
        self.starting = []
        self.line = deque()
        self.busy = []  # times at which a server is free again
        self.offered, self.arrived, self.answered, self.late = 0.0, 0, 0, 0
        self.backlog = 0.0
        self.history = []  # time, replicas decided, ready, waiting
        self.decisions = []
        self.waits = []
        self.replica_seconds = 0.0

    @property
    def ready(self):
        return self.idle + len(self.busy) - self.to_leave

    def run(self, seconds):
        arrivals = self._arrivals(seconds)
        second = 0.0
        for when in [*arrivals, INFINITY]:
            while second <= min(when, seconds):
                self._until(second)
                self._decide(second)
                second += 1.0
            if when < INFINITY:
                self._until(when)
                self._come(when)
        return self

    def _arrivals(self, seconds):
        """At random at the highest rate, and kept with the share that the load has of it."""
        highest = max(self.load(t / 4) for t in range(int(seconds * 4) + 1))
        now, found = 0.0, []
        while highest > 0 and (now := now + self.rng.expovariate(highest)) < seconds:
            if self.rng.random() * highest < self.load(now):
                found.append(now)
        return found

    def _come(self, now):
        work = self.work if self.equal else self.rng.expovariate(1 / self.work)
        self.offered += work
        self.backlog += work
        self.arrived += 1
        self.line.append((now, work))
        self._dispatch(now)

    def _dispatch(self, now):
        while self.line and self.idle > 0:
            came, work = self.line.popleft()
            self.backlog -= work
            self.idle -= 1
            heapq.heappush(self.busy, (now + work, came))

    def _until(self, now):
        """What ends or becomes ready by then, in its order."""
        while True:
            finish = self.busy[0][0] if self.busy else INFINITY
            ready = self.starting[0] if self.starting else INFINITY
            if min(finish, ready) > now:
                return
            if finish <= ready:
                when, came = heapq.heappop(self.busy)
                self.answered += 1
                self.late += when - came > self.slo_seconds
                self.waits.append((came, when - came))
            else:
                when = self.starting.pop(0)
            if self.to_leave:
                self.to_leave -= 1
            else:
                self.idle += 1
            self._dispatch(when)

    def _decide(self, now):
        decision = self.scaling.decide(self.seen(now))
        self.replica_seconds += self.ready + len(self.starting)
        more = decision.replicas - self.ready - len(self.starting)
        for _ in range(more):
            self.starting.append(now + self.cold_start)
        for _ in range(-more):
            if self.starting:
                self.starting.pop()
            elif self.idle:
                self.idle -= 1
            else:
                self.to_leave += 1
        self.decisions.append(decision)
        self.history.append((now, decision.replicas, self.ready, len(self.line)))

    def seen(self, now):
        return ScalingMetrics(
            now=now,
            ready=self.ready,
            starting=len(self.starting),
            offered=self.offered,
            arrived=self.arrived,
            running=len(self.busy),
            waiting=len(self.line),
            backlog=max(0.0, self.backlog),
            cold_start=self.cold_start,
            answered=self.answered,
            late=self.late,
            slo_seconds=self.slo_seconds,
        )

    def decided(self, begin=0.0, end=INFINITY):
        return [count for now, count, *_ in self.history if begin <= now < end]

    def kept(self, begin=0.0):
        """Share of the requests that came since then and were within the SLO."""
        judged = [wait for came, wait in self.waits if came >= begin]
        return sum(wait <= self.slo_seconds for wait in judged) / len(judged)


@dataclass
class Shared(Toy):
    """Replicas without a limit: requests go to the one with the fewest, and there each advances by `speed(n)`."""

    speed: object = lambda n: 1.0 / n  # one server that is shared; lambda n: 1.0 is a perfect batch
    slots: float = INFINITY  # that have been learned

    STEP_SECONDS = 0.02

    def __post_init__(self):
        super().__post_init__()
        self.replicas = [[] for _ in range(self.start)]
        self.done = self.busy = 0.0

    @property
    def ready(self):
        return len(self.replicas)

    def run(self, seconds):
        arrivals = deque(self._arrivals(seconds))
        for step in range(int(seconds / self.STEP_SECONDS)):
            now = step * self.STEP_SECONDS
            while self.starting and self.starting[0] <= now:
                self.starting.pop(0)
                self.replicas.append([])
            while arrivals and arrivals[0] <= now:
                self._accept(arrivals.popleft())
            for jobs in self.replicas:
                self._advance(jobs, now + self.STEP_SECONDS)
            if step % round(1 / self.STEP_SECONDS) == 0:
                self._settle(now)
        return self

    def _accept(self, now):
        work = self.rng.expovariate(1 / self.work)
        self.offered += work
        self.arrived += 1
        min(self.replicas, key=len).append([work, work, now])

    def _advance(self, jobs, now):
        share = self.STEP_SECONDS * self.speed(len(jobs)) if jobs else 0.0
        for job in list(jobs):
            job[0] -= share
            if job[0] <= 0.0:
                jobs.remove(job)
                self.answered += 1
                self.done += job[1]
                self.busy += now - job[2]
                self.waits.append((job[2], now - job[2]))

    def _settle(self, now):
        decision = self.scaling.decide(self.seen(now))
        more = decision.replicas - self.ready - len(self.starting)
        self.starting.extend(now + self.cold_start for _ in range(more))
        for _ in range(min(-more, self.ready - 1)):
            left = self.replicas.pop()
            for job in left:
                min(self.replicas, key=len).append(job)
        self.decisions.append(decision)
        self.history.append((now, decision.replicas, self.ready, 0))

    def seen(self, now):
        return ScalingMetrics(
            now=now,
            ready=self.ready,
            starting=len(self.starting),
            offered=self.offered,
            arrived=self.arrived,
            running=sum(map(len, self.replicas)),
            cold_start=self.cold_start,
            answered=self.answered,
            completed_work=self.done,
            busy_seconds=self.busy,
            slots=self.slots,
            slots_configured=False,
        )
