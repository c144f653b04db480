"""SLO verdicts by model and tenant: workers' cumulative counts in, windows and minutes out. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from ...config import ModelConfig
from ...core.request import INFINITY
from ...core.slo.burn_rate import LONGEST_WINDOW_SECONDS, NO_REQUESTS, SloCounts, SloWindows, period_windows, slo_counts
from ...core.slo.verdicts import MAX_TENANTS, NO_SLO, OTHER_TENANTS, VERDICT_COUNT, SloTarget
from ...link.messages import ModelReport
from ..history.slices import (
    HOUR_SECONDS,
    MINUTE_SECONDS,
    NO_TENANT,
    Slice,
    StoredSloTarget,
    availability_good_bad,
    coarsen_buckets,
    counts_by_verdict,
    latency_good_bad,
)
from ..observability.totals import sum_counts, sum_lists

FULL_COVERAGE_RATIO: Final = 0.95  # from which on a window counts as fully known

TenantKey = tuple[str, str]  # model, tenant
CountsByTenant = Mapping[str, Mapping[str, Sequence[int]]]  # model → tenant → requests by verdict


class TenantCounts:
    __slots__ = ("counts", "period", "recent", "since", "unsaved")

    def __init__(self, period: float) -> None:
        self.counts = [0] * VERDICT_COUNT  # since the supervisor began
        self.recent = SloWindows()
        self.period = period_windows(period)
        self.unsaved = [0] * VERDICT_COUNT  # not yet in the history
        self.since = INFINITY  # first known request

    def add(self, came: Sequence[int], now: float) -> None:
        for index, count in enumerate(came):
            self.counts[index] += count
            self.unsaved[index] += count
        self.add_weighed(slo_counts(came), now, now)

    def add_weighed(self, weighed: SloCounts, when: float, now: float) -> None:
        if any(weighed):
            self.since = min(self.since, when)
            self.period.add(weighed, when)
            if when > now - LONGEST_WINDOW_SECONDS:
                self.recent.add(weighed, when)

    def covered(self, seconds: float, now: float) -> float | None:
        """Seconds of the window that anything is known of; None: all."""
        known = max(0.0, now - self.since) if self.since < INFINITY else 0.0
        return known if known < FULL_COVERAGE_RATIO * seconds else None

    def use(self, period: float) -> None:
        """Changes the period and keeps what is known."""
        if period != self.period.longest:
            before, self.period = self.period, period_windows(period)
            for weighed, when in before.entries():
                self.period.add(weighed, when)


class SloAccounting:
    def __init__(self) -> None:
        self.tenants: dict[TenantKey, TenantCounts] = {}
        self.models: Mapping[str, ModelConfig] = {}
        self._targets: dict[str, tuple[SloTarget, dict[str, SloTarget]]] = {}
        self._tenants: Counter[str] = Counter()  # of each model
        self._last: dict[str, Mapping[str, Sequence[int]]] = {}
        self._latency: dict[str, Mapping[int, int]] = {}  # when last given to the history …
        self._latency_now: dict[str, Mapping[int, int]] = {}  # … and now
        self._left: list[Slice] = []  # of removed models
        self._gone: set[str] = set()  # removed models that draining workers may still report; they may come back

    def follow(self, models: Mapping[str, ModelConfig], minute: int) -> None:
        """Targets from now on; earlier verdicts stay. `minute`: now."""
        self._left += [part for part in self._slices(minute) if part.model not in models]
        self.models = models
        self._targets = {
            name: (model.slo.objective(), model.slo.tenant_objectives()) if model.slo is not None else (NO_SLO, {})
            for name, model in models.items()
        }
        for key in [key for key in self.tenants if key[0] not in models]:
            del self.tenants[key]
            del self._tenants[key[0]]
        self._gone = (self._gone | self._last.keys()) - models.keys()
        for model in self._gone:
            self._forget(model)
        for (name, _), kept in self.tenants.items():
            kept.use(_period(models[name]))
        for name in models:
            self._of(name, NO_TENANT)  # also without traffic

    def target_of(self, key: TenantKey) -> SloTarget:
        target, others = self._targets[key[0]]
        return others.get(key[1], target)

    def update(self, judged: CountsByTenant, latency: Mapping[str, Mapping[int, int]], now: float) -> set[TenantKey]:
        """Takes totals of all workers, with dead ones. Returns the tenants with new requests."""
        changed: set[TenantKey] = set()
        for model in self._last.keys() - judged.keys():
            self._forget(model)
        self._gone &= judged.keys()
        for model, tenants in judged.items():
            if model not in self.models and model not in self._gone:
                continue  # it is being added
            before, self._last[model] = self._last.get(model, {}), tenants
            if model in self.models:
                for tenant, came in _increase(tenants, before).items():
                    key = self._key(model, tenant)
                    self._of(*key).add(came, now)
                    changed.add(key)
        self._latency_now = {model: latency[model] for model in self._last.keys() & latency.keys()}
        return changed

    def take_slices(self, minute: int) -> list[Slice]:
        """What came since the last call, in this minute (seconds since 1970); at least one slice for each model."""
        slices = [*self._left, *self._slices(minute)]
        self._left = []
        self._latency = self._latency_now
        for kept in self.tenants.values():
            if any(kept.unsaved):
                kept.unsaved = [0] * VERDICT_COUNT
        return slices

    def restore(self, known: Iterable[HistoricalCounts], now: float, wall: float) -> None:
        """From the history; `wall` is the time of day `now`."""
        for (model, tenant), weighed, when in known:
            if model in self.models:
                kept = self._of(*self._key(model, tenant))
                if when <= wall + MINUTE_SECONDS:
                    kept.add_weighed(weighed, min(when - wall + now, now), now)
                else:  # the clock was set back since: the time is unknown, but not in the last minutes
                    kept.period.add(weighed, now)

    def _slices(self, minute: int) -> list[Slice]:
        return [
            Slice(
                minute,
                model,
                tenant,
                counts_by_verdict(kept.unsaved),
                self._grown(model) if tenant == NO_TENANT else {},
                StoredSloTarget.of(self.target_of((model, tenant))),
            )
            for (model, tenant), kept in self.tenants.items()
            if tenant == NO_TENANT or any(kept.unsaved)
        ]

    def _grown(self, model: str) -> dict[int, int]:
        now, before = self._latency_now.get(model, {}), self._latency.get(model, {})
        if any(now.get(bucket, 0) < count for bucket, count in before.items()):
            return {}
        return coarsen_buckets({bucket: count - before.get(bucket, 0) for bucket, count in now.items()})

    def _key(self, model: str, tenant: str) -> TenantKey:
        known = (model, tenant) in self.tenants or tenant in self._targets[model][1]
        return (model, tenant if known or self._tenants[model] < MAX_TENANTS else OTHER_TENANTS)

    def _of(self, model: str, tenant: str) -> TenantCounts:
        kept = self.tenants.get((model, tenant))
        if kept is None:
            kept = self.tenants[model, tenant] = TenantCounts(_period(self.models[model]))
            self._tenants[model] += 1
        return kept

    def _forget(self, model: str) -> None:
        self._last.pop(model, None)
        self._latency_now.pop(model, None)
        self._latency.pop(model, None)


class HistoricalCounts(NamedTuple):
    key: TenantKey
    weighed: SloCounts
    when: float  # seconds since 1970, the middle of the step


def condense_history(slices: Iterable[Slice], recent: float) -> list[HistoricalCounts]:
    """What budgets and windows need of a history. Minutes before `recent` become hours: a month may have millions."""
    found: dict[tuple[str, str, int, int], SloCounts] = {}
    for part in slices:
        if part.counts:
            step = max(part.step, HOUR_SECONDS) if part.start < recent else part.step
            place = (part.model, part.tenant, part.start // step * step, step)
            good, lost = availability_good_bad(part.counts)
            met, _ = latency_good_bad(part.counts)
            found[place] = found.get(place, NO_REQUESTS).plus(SloCounts(met, good - met, lost))
    return [
        HistoricalCounts((model, tenant), weighed, start + step / 2)
        for (model, tenant, start, step), weighed in found.items()
    ]


def _increase(tenants: Mapping[str, Sequence[int]], before: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    """What came between two readings; nothing where counts were reset."""
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
    if shrunk and OTHER_TENANTS in grown:  # tenants of a dead worker may have been folded into the others
        rest = [sum(each) for each in zip(grown[OTHER_TENANTS], *shrunk, strict=True)]
        if min(rest) >= 0:
            grown[OTHER_TENANTS] = rest
    return {tenant: came for tenant, came in grown.items() if any(came)}


def sum_reports(
    reports: Iterable[Iterable[ModelReport]],
) -> tuple[dict[str, dict[str, list[int]]], dict[str, dict[int, int]]]:
    """By model: requests of each tenant by verdict, and answers by latency bucket."""
    models: dict[str, list[ModelReport]] = defaultdict(list)
    for model in chain.from_iterable(reports):
        models[model.model].append(model)
    return (
        {name: sum_lists(part for one in same for part in one.slo_verdicts.items()) for name, same in models.items()},
        {name: sum_counts(one.latency for one in same) for name, same in models.items()},
    )


def _period(model: ModelConfig) -> float:
    return float(model.slo.period) if model.slo is not None else LONGEST_WINDOW_SECONDS
