"""A page of metrics as Prometheus reads it, and what `promtool check metrics` would find wrong with it."""

from __future__ import annotations

from collections import defaultdict
from math import inf

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}

Labels = frozenset[tuple[str, str]]


class MetricsPage:
    def __init__(self, text: str) -> None:
        self.text = text
        self.families: dict[str, Metric] = {}  # by name as it is declared
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert name not in self.families, f"{name} is declared twice"
            self.families[name] = family
        self.labels: dict[str, set[str]] = defaultdict(set)  # by name of the sample
        self.values: dict[tuple[str, str], set[str]] = defaultdict(set)  # by name of the sample and label
        self._samples: dict[tuple[str, Labels], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                self._take(sample)

    def _take(self, sample: Sample) -> None:
        key = (sample.name, frozenset(sample.labels.items()))
        assert key not in self._samples, f"twice: {key}"
        self._samples[key] = sample.value
        self.labels[sample.name] |= set(sample.labels)
        for label, value in sample.labels.items():
            self.values[sample.name, label].add(value)

    def value(self, name: str, **labels: str) -> float | None:
        return self._samples.get((name, frozenset(labels.items())))

    def sum(self, name: str, **labels: str) -> float:
        """Of all samples with these labels, whatever others they have."""
        wanted = set(labels.items())
        return sum(value for (found, has), value in self._samples.items() if found == name and wanted <= has)


def lint(page: MetricsPage) -> list[str]:
    problems = []
    for name, family in page.families.items():
        allowed = SUFFIXES.get(family.type, ("",))
        if family.type not in ("gauge", "counter", "histogram", "summary"):
            problems.append(f"{name} is {family.type}")
        if not family.documentation:
            problems.append(f"{name} is not explained")
        if not name.startswith("steelyard_") or (family.type != "counter" and name.endswith(("_total", *SUFFIXES))):
            problems.append(f"{name} is no good name")
        if {sample.name for sample in family.samples} != {f"{name}{suffix}" for suffix in allowed}:
            problems.append(f"{name} has other samples than {allowed}")
        if family.type == "histogram":
            problems += _histogram_problems(name, family)
        if family.type in ("counter", "histogram") and any(sample.value < 0 for sample in family.samples):
            problems.append(f"{name} counts below zero")
    return problems


def _histogram_problems(name: str, family: Metric) -> list[str]:
    buckets: dict[Labels, list[tuple[float, float]]] = defaultdict(list)
    counts: dict[Labels, float] = {}
    sums: set[Labels] = set()
    for sample in family.samples:
        rest = frozenset((label, value) for label, value in sample.labels.items() if label != "le")
        if sample.name == f"{name}_bucket":
            buckets[rest].append((float(sample.labels["le"]), sample.value))
        elif sample.name == f"{name}_count":
            counts[rest] = sample.value
        else:
            sums.add(rest)
    problems = [] if set(buckets) == set(counts) == sums else [f"{name} is not complete"]
    for rest, found in buckets.items():
        bounds, reached = [bound for bound, _ in found], [count for _, count in found]
        if bounds != sorted(set(bounds)) or bounds[-1] != inf or reached != sorted(reached):
            problems.append(f"{name} {dict(rest)} does not grow from bucket to bucket up to +Inf")
        if reached[-1] != counts.get(rest):
            problems.append(f"{name} {dict(rest)}: the last bucket is not the count")
    return problems
