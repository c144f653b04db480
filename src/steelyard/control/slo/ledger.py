"""Who was answered how, by model and tenant: what workers have counted so far comes in, and windows, minutes and counts
since the supervisor began come out. Pure: times are arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ...config import ModelConfig
from ...core.request import INFINITY
from ...core.slo import KINDS, NOTHING_PROMISED, Promise
from ...core.slo_windows import LONGEST, NOTHING, Weighed, Windows, over_period, weigh
from ...link.messages import ModelReport
from ..history.slices import HOUR, MINUTE, WHOLE, Promised, Slice, available, by_name, coarse, in_time

TENANTS: Final = 100  # of a model, counted one by one; each worker may know others
COVERED: Final = 0.95  # of a window, from which on it is as good as all of it
OTHERS: Final = "*"  # all the rest together

Key = tuple[str, str]  # model, tenant
Judged = Mapping[str, Mapping[str, Sequence[int]]]  # model → tenant → requests by judgement


class Kept:
    """How the promise to one tenant of a model is kept."""

    __slots__ = ("counts", "lately", "period", "recent", "since")

    def __init__(self, period: float) -> None:
        self.counts = [0] * KINDS  # since the supervisor began
        self.recent = Windows()
        self.period = over_period(period)
        self.lately = [0] * KINDS  # not yet given to the history
        self.since = INFINITY  # when the first request came that is known of

    def add(self, came: Sequence[int], now: float) -> None:
        for index, count in enumerate(came):
            self.counts[index] += count
            self.lately[index] += count
        self.add_weighed(weigh(came), now, now)

    def add_weighed(self, weighed: Weighed, when: float, now: float) -> None:
        if any(weighed):
            self.since = min(self.since, when)
            self.period.add(weighed, when)
            if when > now - LONGEST:
                self.recent.add(weighed, when)

    def covered(self, seconds: float, now: float) -> float | None:
        """How much of the last so many seconds anything is known of; None: all of it."""
        known = max(0.0, now - self.since) if self.since < INFINITY else 0.0
        return known if known < COVERED * seconds else None

    def use(self, period: float) -> None:
        """Another period; what is known of the one before counts in this one."""
        if period != self.period.longest:
            before, self.period = self.period, over_period(period)
            for weighed, when in before.entries():
                self.period.add(weighed, when)


class Ledger:
    def __init__(self) -> None:
        self.kept: dict[Key, Kept] = {}
        self.models: Mapping[str, ModelConfig] = {}
        self._promises: dict[str, tuple[Promise, dict[str, Promise]]] = {}
        self._tenants: Counter[str] = Counter()  # of each model
        self._last: dict[str, Mapping[str, Sequence[int]]] = {}
        self._latency: dict[str, Mapping[int, int]] = {}  # as it was when last given to the history …
        self._latency_now: dict[str, Mapping[int, int]] = {}  # … and as it is
        self._left: list[Slice] = []  # of models that are gone
        self._gone: set[str] = set()  # models of which workers that leave may still tell; they may come back

    def follow(self, models: Mapping[str, ModelConfig], minute: int) -> None:
        """What is promised from now on. What was judged before stays judged as it was. `minute`: now."""
        self._left += [part for part in self._slices(minute) if part.model not in models]
        self.models = models
        self._promises = {
            name: (model.slo.promise(), model.slo.promises()) if model.slo is not None else (NOTHING_PROMISED, {})
            for name, model in models.items()
        }
        for key in [key for key in self.kept if key[0] not in models]:
            del self.kept[key]
            del self._tenants[key[0]]
        self._gone = (self._gone | self._last.keys()) - models.keys()
        for model in self._gone:
            self._forget(model)
        for (name, _), kept in self.kept.items():
            kept.use(_period(models[name]))
        for name in models:
            self._of(name, WHOLE)  # without traffic, too

    def promise(self, key: Key) -> Promise:
        promise, others = self._promises[key[0]]
        return others.get(key[1], promise)

    def take_in(self, judged: Judged, latency: Mapping[str, Mapping[int, int]], now: float) -> set[Key]:
        """Totals of all workers, the dead ones too. Who has something new."""
        changed: set[Key] = set()
        for model in self._last.keys() - judged.keys():
            self._forget(model)
        self._gone &= judged.keys()
        for model, tenants in judged.items():
            if model not in self.models and model not in self._gone:
                continue  # it is just being added
            before, self._last[model] = self._last.get(model, {}), tenants
            if model in self.models:
                for tenant, came in _came(tenants, before).items():
                    key = self._key(model, tenant)
                    self._of(*key).add(came, now)
                    changed.add(key)
        self._latency_now = {model: latency[model] for model in self._last.keys() & latency.keys()}
        return changed

    def hand_over(self, minute: int) -> list[Slice]:
        """What came since the last time, all of it in this minute (seconds since 1970); of each model at least one."""
        slices = [*self._left, *self._slices(minute)]
        self._left = []
        self._latency = self._latency_now
        for kept in self.kept.values():
            if any(kept.lately):
                kept.lately = [0] * KINDS
        return slices

    def remember(self, known: Iterable[Known], now: float, wall: float) -> None:
        """What the history knows of the time before: `wall` is what time of day it is `now`."""
        for (model, tenant), weighed, when in known:
            if model in self.models:
                kept = self._of(*self._key(model, tenant))
                if when <= wall + MINUTE:
                    kept.add_weighed(weighed, min(when - wall + now, now), now)
                else:  # the clock was set back since: nobody knows when that was, but not in the last minutes
                    kept.period.add(weighed, now)

    def _slices(self, minute: int) -> list[Slice]:
        return [
            Slice(
                minute,
                model,
                tenant,
                by_name(kept.lately),
                self._grown(model) if tenant == WHOLE else {},
                Promised.of(self.promise((model, tenant))),
                MINUTE,
            )
            for (model, tenant), kept in self.kept.items()
            if tenant == WHOLE or any(kept.lately)
        ]

    def _grown(self, model: str) -> dict[int, int]:
        now, before = self._latency_now.get(model, {}), self._latency.get(model, {})
        if any(now.get(bucket, 0) < count for bucket, count in before.items()):
            return {}
        return coarse({bucket: count - before.get(bucket, 0) for bucket, count in now.items()})

    def _key(self, model: str, tenant: str) -> Key:
        known = (model, tenant) in self.kept or tenant in self._promises[model][1]
        return (model, tenant if known or self._tenants[model] < TENANTS else OTHERS)

    def _of(self, model: str, tenant: str) -> Kept:
        kept = self.kept.get((model, tenant))
        if kept is None:
            kept = self.kept[model, tenant] = Kept(_period(self.models[model]))
            self._tenants[model] += 1
        return kept

    def _forget(self, model: str) -> None:
        self._last.pop(model, None)
        self._latency_now.pop(model, None)
        self._latency.pop(model, None)


class Known(NamedTuple):
    """What the history knows of one tenant of a model in some minutes."""

    key: Key
    weighed: Weighed
    when: float  # seconds since 1970, the middle of it


def digest(slices: Iterable[Slice], recent: float) -> list[Known]:
    """What budgets and windows need of a history. Minutes that begin before `recent` become hours: of a month there
    may be millions of them."""
    found: dict[tuple[str, str, int, int], Weighed] = {}
    for part in slices:
        if part.counts:
            step = max(part.step, HOUR) if part.start < recent else part.step
            place = (part.model, part.tenant, part.start // step * step, step)
            good, lost = available(part.counts)
            met, _ = in_time(part.counts)
            found[place] = found.get(place, NOTHING).plus(Weighed(met, good - met, lost))
    return [
        Known((model, tenant), weighed, start + step / 2) for (model, tenant, start, step), weighed in found.items()
    ]


def _came(tenants: Mapping[str, Sequence[int]], before: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """What came between two readings. Where somebody began to count anew, that is not known."""
    grown: dict[str, Sequence[int]] = {}
    for tenant, counts in tenants.items():
        last = before.get(tenant)
        if last is None:
            grown[tenant] = counts
        elif last != counts:
            grown[tenant] = [new - old for new, old in zip(counts, last, strict=True)]
    for tenant in before.keys() - tenants.keys():
        grown[tenant] = [-count for count in before[tenant]]
    shrunk = [grown.pop(tenant) for tenant in [tenant for tenant, came in grown.items() if min(came) < 0]]
    if shrunk and OTHERS in grown:  # tenants of a dead worker may have joined the others, where they are not new
        rest = [sum(each) for each in zip(grown[OTHERS], *shrunk, strict=True)]
        if min(rest) >= 0:
            grown[OTHERS] = rest
    return {tenant: came for tenant, came in grown.items() if any(came)}


def totals(
    reports: Iterable[Iterable[ModelReport]],
) -> tuple[dict[str, dict[str, Sequence[int]]], dict[str, dict[int, int]]]:
    """Of all that were reported, together: requests by judgement, and answers by how long they took."""
    judged: dict[str, dict[str, Sequence[int]]] = {}
    latency: dict[str, dict[int, int]] = {}
    for report in reports:
        for model in report:
            known = judged.setdefault(model.model, {})
            for tenant, counts in model.judged.items():
                before = known.get(tenant)
                known[tenant] = counts if before is None else [a + b for a, b in zip(before, counts, strict=True)]
            buckets = latency.setdefault(model.model, {})
            for bucket, count in model.latency.items():
                buckets[bucket] = buckets.get(bucket, 0) + count
    return judged, latency


def _period(model: ModelConfig) -> float:
    return float(model.slo.period) if model.slo is not None else LONGEST
