"""The table of policies. A new one is one file, one line here, one section in docs/policies.md; the suite finds it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from ..plugins import find_class, make_plugin
from ..plugins import plugin_options as policy_options
from .base import Policy

POLICIES: dict[str, str] = {
    "least_work": "steelyard.core.policies.least_work:LeastWork",
    "prefix_work": "steelyard.core.policies.prefix_work:PrefixWork",
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
    return find_class("policy", name, POLICIES, Policy, "steelyard.Policy", ("choose",))


def make_policy(name: str, rng: Random, options: Mapping[str, Any]) -> Policy:
    return make_plugin("policy", name, find_policy(name), options, rng)
