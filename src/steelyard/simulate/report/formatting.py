"""Means over seeds, and figures as people read them: the same in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

from ...units import format_seconds
from ..run import is_peer, is_reference

DASH = "–"


def seconds(value: Estimate) -> tuple[str, str]:
    """`("412 ms", "± 12")`: the second part, in the unit of the first, is empty with a single seed."""
    text = format_seconds(value.mean)
    if isnan(value.mean) or isnan(value.half_width):
        return text, ""
    number, unit = text.split(" ")
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
    digits = len(number.partition(".")[2])
    return text, f"± {value.half_width / scale:.{digits}f}"


def round_seconds(value: float) -> str:
    """For an axis or a sentence: `50 ms`, not `50.0 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.999 * scale:
            return f"{value / scale:,.4g} {unit}" if value < 1e4 else f"{value:,.0f} {unit}"
    return f"{value * 1e6:.4g} µs" if value else "0 s"


def ratio(value: Estimate | None) -> tuple[str, str]:
    """`("1.31×", "± 0.04")`"""
    if value is None or isnan(value.mean):
        return DASH, ""
    digits = 2 if value.mean < 10 else 1 if value.mean < 100 else 0
    half = "" if isnan(value.half_width) or not value.half_width else f"± {value.half_width:.{digits}f}"
    return f"{value.mean:.{digits}f}×", half


def percent(value: Estimate | float | None) -> str:
    """Small shares keep a digit that is not zero."""
    share = value.mean if isinstance(value, Estimate) else value
    if share is None or isnan(share):
        return DASH
    amount = 100 * share
    if amount == 0 or amount >= 99.995:
        return f"{amount:.0f} %"
    if amount > 99.9:
        return f"{amount:.2f} %"
    return f"{amount:.1f} %" if amount >= 0.1 else f"{amount:.2g} %"


def rate(value: Estimate) -> tuple[str, str]:
    return f"{value.mean:,.0f}" if value.mean >= 10 else f"{value.mean:.2g}", ""


def load(value: float) -> str:
    return f"{100 * value:g} %" if value else "as recorded"


def load_in_replicas(value: float) -> str:
    return f"{value:g} {'replica' if value == 1 else 'replicas'}" if value else "as recorded"


def number(value: Estimate | None) -> tuple[str, str]:
    """`("12.4", "± 0.3")`"""
    if value is None or isnan(value.mean):
        return DASH, ""
    digits = 2 if value.mean < 10 else 1 if value.mean < 1000 else 0
    half = "" if isnan(value.half_width) or not value.half_width else f"± {value.half_width:,.{digits}f}"
    return f"{value.mean:,.{digits}f}", half


def policy_label(name: str) -> str:
    return f"{name} (reference)" if is_reference(name) else f"{name} (model)" if is_peer(name) else name


# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom; beyond, that of fewer degrees.
_STUDENT_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_STUDENT_T_95_LARGE = ((120, 1.980), (60, 2.000), (40, 2.021), (31, 2.042))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % confidence interval, nan with one seed."""

    mean: float
    half_width: float = nan


def estimate(values: Sequence[float]) -> Estimate:
    n = len(values)
    if not n:
        return Estimate(nan)
    mean = sum(values) / n
    if n == 1:
        return Estimate(mean)
    variance = sum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, student_t(n - 1) * sqrt(variance / n))


def student_t(freedom: int) -> float:
    if freedom <= len(_STUDENT_T_95):
        return _STUDENT_T_95[freedom - 1]
    return next(t for least, t in _STUDENT_T_95_LARGE if freedom >= least)
