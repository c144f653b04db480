"""Figures of several rounds: medians, how far they spread, and ratios within a round, where noise is the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan
from statistics import median
from typing import Any, Generic, TypeVar

R = TypeVar("R")


@dataclass
class Report:
    """A table, the goals checked, and everything it was made from."""

    title: str
    header: list[str]
    rows: list[list[str]]
    verdicts: list[str]
    raw: dict[str, Any] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


@dataclass
class Rounds(Generic[R]):
    """Results by peer and round, and the peers that failed, with messages."""

    seen: dict[str, list[R]]
    broken: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, result: R) -> None:
        self.seen.setdefault(name, []).append(result)

    def give_up(self, name: str, problem: str) -> None:
        """All its rounds go: medians over fewer rounds than the others' would not be comparable."""
        self.broken[name] = problem
        self.seen.pop(name, None)

    def values(self, name: str, value: Callable[[R], float]) -> list[float]:
        return [value(result) for result in self.seen.get(name, [])]

    def median(self, name: str, value: Callable[[R], float]) -> float:
        values = self.values(name, value)
        return median(values) if values else float("nan")

    def spread(self, name: str, value: Callable[[R], float]) -> float:
        """Half the range, as a share of the median."""
        values = self.values(name, value)
        return (max(values) - min(values)) / 2 / median(values) if values and median(values) else float("nan")

    def against(self, name: str, other: str, value: Callable[[R], float]) -> float:
        """The median over rounds of one's value ÷ the other's."""
        return self._paired(name, other, value, lambda mine, theirs: mine / theirs if theirs else float("nan"))

    def above(self, name: str, other: str, value: Callable[[R], float]) -> float:
        """The median over rounds of one's value - the other's."""
        return self._paired(name, other, value, lambda mine, theirs: mine - theirs)

    def _paired(
        self, name: str, other: str, value: Callable[[R], float], compare: Callable[[float, float], float]
    ) -> float:
        pairs = zip(self.values(name, value), self.values(other, value), strict=False)
        results = [compare(mine, theirs) for mine, theirs in pairs]
        return median(results) if results else float("nan")


def verdict(goal: str, value: float, limit: float, *, least: bool = False, unit: str = "") -> str:
    """One line for one goal: met, missed or, where the other was not measured, neither."""
    wanted = f"(goal {'≥' if least else '≤'} {limit:g}{unit})"
    if isnan(value):
        return f"– {goal}: not measured {wanted}"
    met = value >= limit if least else value <= limit
    return f"{'✓' if met else '✗'} {goal}: {value:.2f}{unit} {wanted}"


def ratio(value: float) -> str:
    return "–" if isnan(value) else f"{value:.2f}"
