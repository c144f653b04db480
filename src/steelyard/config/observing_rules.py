"""The rules of what is promised."""

from __future__ import annotations

from collections.abc import Iterator

from ..documents import Key, Problem
from .observing import SloConfig
from .shape import Config

_MIN_PERIOD_SECONDS = 3600.0  # seconds of an error budget
_OVERFLOW_TENANT = "*"  # the name under which tenants are counted that are too many
_MAX_TENANT_NAME_CHARS = 256


def slo_problems(config: Config) -> Iterator[Problem]:
    for name, model in config.models.items():
        if model.slo is not None:
            yield from _slo(("models", name, "slo"), model.slo, named=bool(config.tenant_header or config.tenants))
    if not config.history.keep:
        yield Problem(("history", "keep"), "must be more than 0")


def _slo(key: Key, slo: SloConfig, *, named: bool) -> Iterator[Problem]:
    if slo.period < _MIN_PERIOD_SECONDS:
        yield Problem((*key, "period"), "must be at least 1h")
    if slo.tenants and not named:
        yield Problem((*key, "tenants"), "nothing says whose a request is: set tenant_header, for example to x-tenant")
    for tenant, own in slo.tenants.items():
        place = (*key, "tenants", tenant)
        if not tenant or tenant == _OVERFLOW_TENANT or len(tenant) > _MAX_TENANT_NAME_CHARS:
            what = f"the name of a tenant has 1 to {_MAX_TENANT_NAME_CHARS} characters, and is not {_OVERFLOW_TENANT}"
            yield Problem(place, what)
        for time in ("latency", "first_byte"):
            if getattr(own, time) == 0:
                yield Problem((*place, time), "must be more than 0")
        if own.latency is own.percentile is own.availability is own.first_byte is None:
            yield Problem(place, "promises nothing of its own: give latency, first_byte, percentile or availability")
