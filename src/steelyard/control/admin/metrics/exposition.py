"""Prometheus' text form (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: str) -> str:
    return ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items()])


class Sample(NamedTuple):
    labels: str  # made by `labels`
    value: float | None  # None: unknown, and left out
    suffix: str = ""  # of the name


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: str  # gauge, counter, histogram, summary
    help: str
    samples: Iterable[Sample]


def attribute_families(
    table: Iterable[tuple[str, str, str, str]], things: Sequence[tuple[str, object]]
) -> Iterator[Family]:
    """`table`: full name, kind, help and the attribute that is the value; `things`: each with its labels."""
    for name, kind, meaning, attribute in table:
        samples = [Sample(of, getattr(thing, attribute)) for of, thing in things]
        yield Family(name, kind, meaning, samples)


def histogram(of: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Iterator[Sample]:
    """`counts`: one for each bound, not cumulative, and one for what is above all bounds."""
    reached = list(accumulate(counts))
    for bound, count in zip([*bounds, "+Inf"], reached, strict=True):
        yield Sample(f'{of},le="{bound}"', count, "_bucket")
    yield Sample(of, total, "_sum")
    yield Sample(of, reached[-1], "_count")


def render(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for name, kind, meaning, samples in families:
        found = [
            f"{name}{suffix}{{{about}}} {+value}" if about else f"{name}{suffix} {+value}"  # +True is 1
            for about, value, suffix in samples
            if value is not None
        ]
        if found:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *found]
    return "\n".join(lines) + "\n"
