"""The rules of every runtime; each kind adds its own."""

from __future__ import annotations

from collections.abc import Iterator

from ...documents import Key, Problem, did_you_mean_or_list
from ..formats import zero_problems
from ..sections.root import Config, ModelConfig
from ..sections.runtime import RuntimeConfig

_LIST_IT = ': list it there, for example gpu0: {gpu: "0"}'


def runtime_problems(key: Key, model: ModelConfig, config: Config) -> Iterator[Problem]:
    runtime = model.runtime
    if runtime is None:
        return
    here: Key = (*key, "runtime")
    yield from _conflicts(key, model)
    yield from runtime.problems(here, model)
    yield from _devices(here, runtime, config)
    yield from zero_problems(here, runtime, "start_timeout", "stop_timeout")


def max_started(model: ModelConfig) -> float:
    """Most replicas started, besides those listed or found."""
    if model.runtime is None:
        return 0
    if model.autoscale is None or model.autoscale.mode != "act":
        return model.runtime.replicas
    return float("inf") if model.autoscale.max is None else model.autoscale.max


def _conflicts(key: Key, model: ModelConfig) -> Iterator[Problem]:
    if model.placement is not None:
        what = "a model is started by us or loaded on servers that run already: leave out runtime or placement"
        yield Problem((*key, "runtime"), what)
    elif not model.health.enabled:  # with placement there is an error already
        what = "must not be false with runtime: a probe sees when what was started is ready"
        yield Problem((*key, "health", "enabled"), what)


def _devices(key: Key, runtime: RuntimeConfig, config: Config) -> Iterator[Problem]:
    for place, name in enumerate(runtime.devices):
        where: Key = (*key, "devices", place)
        if name not in config.devices:
            hint = did_you_mean_or_list(name, config.devices, otherwise="there are")
            yield Problem(where, f"no {name!r} under devices{hint or _LIST_IT}")
        elif name in runtime.devices[:place]:
            yield Problem(where, f"{name!r} is there twice")
