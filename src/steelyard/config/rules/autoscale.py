"""The rules of how many replicas there should be."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.errors import OptionError
from ...core.scalers import SCALERS, find_scaler, make_scaler
from ...core.scaling.schedule import make_period, parse_days, parse_time
from ...documents import Key, Problem, did_you_mean
from ..formats import option_problems, zero_problems
from ..sections.root import Config, ModelConfig
from ..sections.scaling import AutoscaleConfig, SchedulePeriod, time_zone
from .runtime import max_started

MAX_REPLICAS = 4096  # that have a column each in the shared memory ledger


def autoscale_problems(key: Key, model: ModelConfig) -> Iterator[Problem]:
    scale = model.autoscale
    if scale is None:
        return
    here: Key = (*key, "autoscale")
    yield from _runtime_required(key, model, scale)
    if scale.max is not None and scale.max < scale.min:
        yield Problem((*here, "max"), f"must be at least min ({scale.min}), not {scale.max}")
    yield from zero_problems(here, scale, "scale_to_zero_after")
    yield from _scaler(here, scale)
    for place, period in enumerate(scale.schedule):
        yield from _period((*here, "schedule", place), period, scale)
    try:
        time_zone(scale.timezone)
    except ValueError as problem:
        yield Problem((*here, "timezone"), str(problem))


def _runtime_required(key: Key, model: ModelConfig, scale: AutoscaleConfig) -> Iterator[Problem]:
    here: Key = (*key, "autoscale")
    runtime = model.runtime
    if runtime is None and scale.mode == "act":
        yield Problem((*here, "mode"), "no `runtime`: nothing starts replicas; add one or set `mode: recommend`")
    elif runtime is not None and scale.mode == "act" and runtime.replicas != 1:
        what = "autoscale says how many: leave this out, or write autoscale.min and max"
        yield Problem((*key, "runtime", "replicas"), what)


def _scaler(key: Key, scale: AutoscaleConfig) -> Iterator[Problem]:
    try:
        kind = find_scaler(scale.scaler)
    except OptionError as problem:
        close = did_you_mean(scale.scaler, SCALERS) if scale.scaler not in SCALERS else ""
        yield Problem((*key, "scaler"), f"no scaler {scale.scaler!r}{close}" if close else str(problem))
        return
    name, given = scale.scaler, scale.scaler_options
    yield from option_problems((*key, "scaler_options"), name, kind, given, lambda: make_scaler(name, given))


def _period(key: Key, period: SchedulePeriod, scale: AutoscaleConfig) -> Iterator[Problem]:
    yield from list(_period_texts(key, period)) or _period_bounds(key, period)
    if scale.max is not None and period.min > scale.max:
        yield Problem((*key, "min"), f"must be at most autoscale.max ({scale.max}), not {period.min}")


def _period_texts(key: Key, period: SchedulePeriod) -> Iterator[Problem]:
    for name in ("start", "end", "days"):
        try:
            (parse_days if name == "days" else parse_time)(getattr(period, name))
        except OptionError as problem:
            yield Problem((*key, name), str(problem))


def _period_bounds(key: Key, period: SchedulePeriod) -> Iterator[Problem]:
    try:
        make_period(period.start, period.end, period.min, period.days)
    except OptionError as problem:
        name, _, what = str(problem).partition(": ")
        yield Problem((*key, name), what)


def shared_memory_problems(config: Config) -> Iterator[Problem]:
    """The shared memory ledger has a column for each replica; its size is fixed at the start."""
    listed = sum(len(model.replicas) for model in config.models.values())
    most = {name: max_started(model) for name, model in config.models.items()}
    started = sum(number for number in most.values() if number < float("inf"))
    room = max(MAX_REPLICAS, 2 * listed) - listed
    if started > room:
        name = max((name for name in most if most[name] < float("inf")), key=lambda name: most[name])
        where = ("autoscale", "max") if _acts(config.models[name]) else ("runtime", "replicas")
        what = f"up to {started:.0f} replicas may be started, and there is room for {room}: allow fewer"
        yield Problem(("models", name, *where), what)


def _acts(model: ModelConfig) -> bool:
    return model.autoscale is not None and model.autoscale.mode == "act"
