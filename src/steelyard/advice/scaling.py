"""Warnings about replicas that Steelyard starts, and about how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..config import AutoscaleConfig, Config, ModelConfig
from ..config.rules.runtime import max_started
from ..core.scalers import find_scaler, scaler_options
from ..documents import Key
from ..units import format_seconds
from .models import Findings


def unknown_started_size(config: Config) -> Findings:
    """a model started on shared devices without a declared size"""
    users = Counter(device for model in config.models.values() for device in _devices(model))
    for name, model in config.models.items():
        runtime = model.runtime
        if runtime is None or not runtime.devices or model.memory.footprint:
            continue
        shared = next((device for device in runtime.devices if users[device] > 1), None)
        if shared is not None or max_started(model) > len(runtime.devices):
            beside = f"beside others on {shared}" if shared is not None else "beside another on one device"
            what = f"Its size is unknown before the first start, so one {beside} may not fit."
            do = "Declare memory.weights: the size of its file is a good beginning."
            yield ("models", name, "runtime", "devices"), what, do


def _devices(model: ModelConfig) -> set[str]:
    started = model.runtime.devices if model.runtime is not None else ()
    return {replica.device for replica in model.replicas} | {*started}


def never_starts(key: Key, model: ModelConfig) -> Findings:
    """`runtime.replicas: 0` without other replicas or an autoscaler"""
    if model.runtime is None or max_started(model) or model.replicas or model.discovery:
        return
    what = "Nothing is ever started, so each request waits until it is refused."
    yield (*key, "runtime", "replicas"), what, "Add autoscale with min: 0, which starts one when a request comes."


def no_max_replicas(key: Key, model: ModelConfig) -> Findings:
    """`autoscale` without `max`"""
    if model.autoscale is not None and model.autoscale.max is None:
        what = "A flood of requests, or one slow dependency, starts replicas until the machine is full."
        yield (*key, "autoscale"), what, "Give max: as many as there is room and money for."


def autoscale_without_slo(key: Key, model: ModelConfig) -> Findings:
    """`autoscale` without `slo`"""
    if model.autoscale is not None and model.slo is None:
        what = "Without an `slo` it scales by offered load alone."
        yield (*key, "autoscale"), what, "Add slo to the model, for example {latency: 2s, percentile: 99}."


def autoscale_unlimited_concurrency(key: Key, model: ModelConfig) -> Findings:
    """`autoscale` with `concurrency: unlimited`"""
    if model.autoscale is not None and model.concurrency == "unlimited":
        slow = "more are started only when requests there have become several times slower than alone"
        what = f"How much one replica takes at once is not known: {slow}."
        yield (*key, "concurrency"), what, "Give the number that one replica serves well, for example 32, or auto."


def wait_below_cold_start(key: Key, model: ModelConfig) -> Findings:
    """`autoscale.min: 0`, and requests wait less than a start takes"""
    scale = model.autoscale
    if scale is None or scale.min or model.runtime is None or scale.mode != "act":
        return
    for name, seconds in (("queue_timeout", model.queue_timeout), ("timeout", model.timeout)):
        if seconds is not None and seconds < scale.cold_start:
            first = f"the first replica takes {format_seconds(scale.cold_start)} to start"
            what = f"Requests wait no longer than {format_seconds(seconds)}, and {first}: they are refused before."
            yield (*key, name), what, f"Make {name} longer, or keep one replica with autoscale.min: 1."
            return


def scale_down_before_cold_start(key: Key, model: ModelConfig) -> Findings:
    """replicas removed sooner than a new one starts"""
    scale = model.autoscale
    if scale is None:
        return
    for where, seconds in _scale_down_delays(scale):
        if seconds < scale.cold_start:
            start = format_seconds(scale.cold_start)
            what = f"A replica goes after {format_seconds(seconds)}, and its successor takes {start} to start."
            do = "Make it several times as long as cold_start, or each pause costs a start."
            yield (*key, "autoscale", *where), what, do


def _scale_down_delays(scale: AutoscaleConfig) -> Iterator[tuple[Key, float]]:
    if not scale.min:
        yield ("scale_to_zero_after",), scale.scale_to_zero_after
    given = {**scaler_options(find_scaler(scale.scaler)), **scale.scaler_options}.get("stabilization_window")
    if isinstance(given, int | float):
        own = "stabilization_window" in scale.scaler_options
        yield ("scaler_options", "stabilization_window") if own else ("cold_start",), given
