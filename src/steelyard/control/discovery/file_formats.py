"""The formats of a file with replicas: our own, and `file_sd` of Prometheus. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ...config import Config, ModelConfig, ReplicaConfig
from ...config.rules.model import model_problems
from ...config.sections.base import Section, Weight
from ...documents import DocumentError, Key, Problem, YamlDocument, convert

WEIGHT_LABELS = ("weight", "__weight__")
SCHEMES = ("http", "https")

Listed = tuple[str | ReplicaConfig, ...]


class ReplicasDocument(Section, frozen=True):
    replicas: Listed


class TargetGroup(Section, frozen=True):
    """Of Prometheus. Labels that mean nothing here may hold anything."""

    targets: tuple[str, ...]
    labels: dict[str, Any] = msgspec.field(default_factory=dict)


class FileEntry(NamedTuple):
    key: Key
    replica: ReplicaConfig
    text: bool  # a URL, not a mapping


def parse_replicas(text: str, name: str, scheme: str = "http") -> tuple[ReplicaConfig, ...]:
    """DocumentError: all that is wrong. `scheme`: of targets without `__scheme__`."""
    tree = YamlDocument(_yaml(text), name)
    entries = _entries(tree, scheme)
    replicas = tuple(entry.replica for entry in entries)
    # The rules of a model's list: everything else of a model is valid by default.
    problems = model_problems((), ModelConfig(replicas=replicas), Config(models={}))
    if found := [tree.diagnostic(_where(problem, entries)) for problem in problems]:
        raise DocumentError.of(found)
    return replicas


def _yaml(text: str) -> str:
    """YAML takes JSON, but not with tabs; in JSON, those are never part of a value."""
    if "\t" not in text:
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


def _entries(tree: YamlDocument, scheme: str) -> list[FileEntry]:
    if isinstance(tree.data, dict):
        return _listed(convert(tree, ReplicasDocument).replicas, ("replicas",))
    if isinstance(tree.data, list) and any(isinstance(item, dict) and "targets" in item for item in tree.data):
        return _targets(tree, scheme)
    return _listed(convert(tree, Listed), ())


def _where(problem: Problem, entries: list[FileEntry]) -> Problem:
    match problem.key:
        case ("replicas", int(place), *inner):
            entry = entries[place]
            return Problem(entry.key if entry.text else (*entry.key, *inner), problem.what)
    return problem


def _listed(items: Listed, key: Key) -> list[FileEntry]:
    return [
        FileEntry((*key, place), ReplicaConfig(url=item) if isinstance(item, str) else item, isinstance(item, str))
        for place, item in enumerate(items)
    ]


def _targets(tree: YamlDocument, scheme: str) -> list[FileEntry]:
    found: dict[str, FileEntry] = {}
    wrong: list[Problem] = []
    for place, group in enumerate(convert(tree, tuple[TargetGroup, ...])):
        wrong += _wrong_labels(group.labels, (place, "labels"))
        if wrong:
            continue
        for number, target in enumerate(group.targets):
            replica = _replica(target, group.labels, scheme)
            # A target may be in several groups, for different metrics: the first counts.
            found.setdefault(replica.url, FileEntry((place, "targets", number), replica, text=True))
    if wrong:
        raise DocumentError.of(map(tree.diagnostic, wrong))
    return list(found.values())


def _replica(target: str, labels: dict[str, Any], scheme: str) -> ReplicaConfig:
    weight = next((_weight(labels[name]) for name in WEIGHT_LABELS if name in labels), 1.0)
    zone, device = (str(labels.get(name, "")) for name in ("zone", "device"))
    return ReplicaConfig(url=f"{labels.get('__scheme__', scheme)}://{target}", weight=weight, zone=zone, device=device)


def _weight(label: Any) -> float:
    weight: float = msgspec.convert(label, Weight, strict=False)  # labels are texts
    return weight


def _wrong_labels(labels: dict[str, Any], key: Key) -> Iterator[Problem]:
    if (scheme := labels.get("__scheme__", "http")) not in SCHEMES:
        yield Problem((*key, "__scheme__"), f"{scheme!r} is not http or https")
    for name in ("zone", "device"):
        if not isinstance(labels.get(name, ""), str | int | float):
            yield Problem((*key, name), "must be text")
    for name in WEIGHT_LABELS:
        try:
            _weight(labels.get(name, 1))
        except msgspec.ValidationError:
            yield Problem((*key, name), f"{labels[name]!r} is not a weight: write a number from 0.000001 to 1000000")
