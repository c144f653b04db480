"""Prometheus' text form (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def labels(**values: str) -> str:
    """As they are written. To be made once for all samples of one thing."""
    return ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items()])


class Sample(NamedTuple):
    labels: str  # of `labels`
    value: float | None  # None: not known, and left out
    suffix: str = ""  # of the name


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: str  # gauge, counter, histogram, summary
    help: str
    samples: Iterable[Sample]


def histogram(of: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Iterator[Sample]:
    """`counts`: one for each bound, not those below it, and one for what is above all bounds."""
    comma = "," if of else ""
    reached = list(accumulate(counts))
    for bound, count in zip(bounds, reached, strict=False):
        yield Sample(f'{of}{comma}le="{bound}"', count, "_bucket")
    yield Sample(f'{of}{comma}le="+Inf"', reached[-1], "_bucket")
    yield Sample(of, total, "_sum")
    yield Sample(of, reached[-1], "_count")


def render(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for name, kind, meaning, samples in families:
        found = [
            f"{name}{suffix}{{{about}}} {value}" if about else f"{name}{suffix} {value}"
            for about, value, suffix in samples
            if value is not None
        ]
        if found:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *found]
    return "\n".join(lines) + "\n"
