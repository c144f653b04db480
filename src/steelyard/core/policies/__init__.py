"""The table of policies. A new one is one file, one line here, one section in docs/policies.md; the suite finds it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from random import Random
from typing import Any

from ..errors import OptionError
from .base import Policy

POLICIES: dict[str, str] = {
    "least_work": "steelyard.core.policies.least_work:LeastWork",
    "least_connections": "steelyard.core.policies.least_connections:LeastConnections",
    "power_of_two": "steelyard.core.policies.power_of_two:PowerOfTwo",
    "round_robin": "steelyard.core.policies.round_robin:RoundRobin",
    "weighted_round_robin": "steelyard.core.policies.weighted_round_robin:WeightedRoundRobin",
    "random": "steelyard.core.policies.random:Random",
    "least_response_time": "steelyard.core.policies.least_response_time:LeastResponseTime",
    "peak_ewma": "steelyard.core.policies.peak_ewma:PeakEwma",
    "latency_aware": "steelyard.core.policies.latency_aware:LatencyAware",
    "prequal": "steelyard.core.policies.prequal:Prequal",
    "consistent_hash": "steelyard.core.policies.consistent_hash:ConsistentHash",
}

__all__ = ["POLICIES", "Policy", "find_policy", "make_policy", "policy_options"]


def find_policy(name: str) -> type[Policy]:
    """The class behind a name of the table, or behind `package.module:Class`."""
    target = POLICIES.get(name, name)
    if ":" not in target:
        raise OptionError(
            f"no policy {name!r}; there are {', '.join(POLICIES)}, or name your own as package.module:Class"
        )
    module_name, _, class_name = target.partition(":")
    if not module_name or not class_name:
        raise OptionError(f"policy {name!r}: write package.module:Class")
    try:
        module = import_module(module_name)
    except Exception as problem:  # whatever a user's module raises while it is imported
        raise OptionError(f"policy {name!r}: cannot import {module_name!r}: {problem}") from problem
    found = getattr(module, class_name, None)
    if found is None:
        raise OptionError(f"policy {name!r}: module {module_name!r} has no {class_name!r}")
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise OptionError(f"policy {name!r}: {class_name} is not a subclass of steelyard.Policy")
    return found


def policy_options(kind: type[Policy]) -> dict[str, Any]:
    """The options a policy takes, with their defaults."""
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def make_policy(name: str, rng: Random, options: Mapping[str, Any]) -> Policy:
    kind = find_policy(name)
    known = policy_options(kind)
    for option in options:
        if option not in known:
            takes = ", ".join(known) or "no options"
            raise OptionError(f"policy {name!r}: unknown option {option!r} (it takes {takes})")
    try:
        return kind(rng, **options)
    except OptionError as problem:
        raise OptionError(f"policy {name!r}: {problem}") from None
    except TypeError as problem:
        raise OptionError(f"policy {name!r}: {problem}") from problem
