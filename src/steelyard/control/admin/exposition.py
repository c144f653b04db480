"""Prometheus' text form (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    labels: dict[str, str]
    value: float | None  # None: not known, and left out


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: str  # gauge, counter
    meaning: str
    samples: Iterable[Sample]


def written(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for family in families:
        found = [_line(family.name, sample) for sample in family.samples if sample.value is not None]
        if found:
            lines += [f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}", *found]
    return "\n".join(lines) + "\n"


def _line(name: str, sample: Sample) -> str:
    labels = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sample.labels.items())
    return f"{name}{{{labels}}} {sample.value}" if labels else f"{name} {sample.value}"
