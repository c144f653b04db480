"""Checks of scalers' options: a wrong one is named, and what would be right is said."""

from __future__ import annotations

from math import isfinite

from ..errors import OptionError
from ..request import INFINITY


def number(
    name: str, value: float, *, least: float = -INFINITY, above: float = -INFINITY, most: float = INFINITY
) -> float:
    """A finite number in a range."""
    fine = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if fine and value >= least and value > above and value <= most:
        return float(value)
    wanted = "a number"
    if least > -INFINITY or above > -INFINITY:
        wanted += f" of at least {least:g}" if least > -INFINITY else f" above {above:g}"
    if most < INFINITY:
        wanted += f", at most {most:g}"
    raise OptionError(f"{name}: must be {wanted}, not {value!r}")


def boolean(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name}: must be true or false, not {value!r}")
    return value
