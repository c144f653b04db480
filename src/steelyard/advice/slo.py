"""Warnings about times and objectives: never reached, or hardly meant so."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..config import Config, ModelConfig, SloConfig, TenantSloConfig
from ..documents import Key, Seconds
from ..units import format_seconds
from .models import Findings

SUSPICIOUS_BARE_SECONDS = 60.0  # a larger bare number was probably meant as milliseconds


def slo_above_timeout(key: Key, model: ModelConfig) -> Findings:
    """an `slo.latency` or `slo.first_byte` above `timeout`"""
    for where, slo in _objectives(key, model):
        for name in ("latency", "first_byte"):
            seconds = getattr(slo, name)
            if seconds is not None and model.timeout is not None and seconds > model.timeout:
                what = f"{format_seconds(seconds)} is the target, and timeout ends a request after"
                what = f"{what} {format_seconds(model.timeout)}: what is late has failed already."
                yield (*where, name), what, "Make it shorter than timeout, or timeout longer."


def wait_above_timeout(key: Key, model: ModelConfig) -> Findings:
    """a `queue_timeout` above `timeout`"""
    wait, usual = model.queue_timeout, ModelConfig().queue_timeout
    if model.starts_on_demand:
        return  # see wait_below_cold_start
    if wait is not None and wait != usual and model.timeout is not None and wait > model.timeout:
        what = f"{format_seconds(wait)} is never reached: timeout ends a request after {format_seconds(model.timeout)}."
        yield (*key, "queue_timeout"), what, "Make it shorter than timeout, or leave it out."


def fraction_as_percent(key: Key, model: ModelConfig) -> Findings:
    """a `percentile` or `availability` below 1: it is a percentage"""
    for where, slo in _objectives(key, model):
        for name in ("percentile", "availability"):
            value = getattr(slo, name)
            if value is not None and value < 1.0:
                what = f"{value:g} is {value:g} % of requests."
                yield (*where, name), what, f"Write {value * 100:g} if that is meant."


def _objectives(key: Key, model: ModelConfig) -> Iterator[tuple[Key, SloConfig | TenantSloConfig]]:
    if model.slo is not None:
        yield (*key, "slo"), model.slo
        yield from (((*key, "slo", "tenants", name), own) for name, own in model.slo.tenants.items())


def no_unit(config: Config) -> Findings:
    """a duration of a minute or more without a unit"""
    for key, seconds in _bare_durations((), config):
        if seconds >= SUSPICIOUS_BARE_SECONDS:
            what = f"{seconds:g} without a unit is {seconds:g} seconds."
            yield key, what, f"Write {seconds:g}s, or {seconds:g}ms if that is meant."


def _bare_durations(key: Key, value: object) -> Iterator[tuple[Key, Seconds]]:
    if isinstance(value, Seconds):
        if value.bare:
            yield key, value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _bare_durations((*key, name), getattr(value, name))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _bare_durations((*key, name), inner)
    elif isinstance(value, tuple):
        for place, inner in enumerate(value):
            yield from _bare_durations((*key, place), inner)
