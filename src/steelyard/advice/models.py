"""Warnings about one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..addresses import replica_address
from ..config import ModelConfig, ReplicaTlsConfig
from ..documents import Key
from ..protocols import find_dialect
from ..protocols.dialects.http import PlainHttp
from ..protocols.dialects.openai import OpenAI

# What one check gives back.

Findings = Iterator[tuple[Key, str, str]]  # the key, what is so, what to do

LOAD_BLIND_POLICIES = ("round_robin", "weighted_round_robin", "random")  # look neither at load nor at sizes
HIGH_RETRY_BUDGET = 0.5  # retries per request, just when the fleet is failing
MAX_SENSIBLE_ATTEMPTS = 5


def weights_ignored(key: Key, model: ModelConfig) -> Findings:
    """`round_robin` over replicas of unequal weight"""
    weights = sorted({replica.weight for replica in model.replicas})
    if model.policy == "round_robin" and len(weights) > 1:
        what = f"round_robin sends as much to a replica of weight {weights[0]:g} as to one of {weights[-1]:g}."
        yield (*key, "policy"), what, "Use least_work, or weighted_round_robin if requests are all alike."


def load_blind_policy(key: Key, model: ModelConfig) -> Findings:
    """a load-blind policy for requests of uneven size (`dialect: openai` or like it, or none)"""
    if model.policy in LOAD_BLIND_POLICIES and may_generate(model):
        what = (
            f"{model.policy} sends to busy replicas too, and generating an answer takes from milliseconds to minutes."
        )
        yield (*key, "policy"), what, "Use least_work or least_connections."


def no_replicas(key: Key, model: ModelConfig) -> Findings:
    """a model without replicas, `discovery` and `runtime`"""
    if not model.replicas and not model.discovery and model.runtime is None:
        what = "It has no replicas, so every request for it is refused until some register or are added."
        yield key, what, "List replicas or give discovery, unless they register or come through the admin API."


def single_replica(key: Key, model: ModelConfig) -> Findings:
    """one replica, without `discovery` and `autoscale`"""
    started = model.runtime.replicas if model.runtime is not None else 0
    if len(model.replicas) + started == 1 and not model.discovery and model.autoscale is None:
        what = "With one replica there is nowhere to go when it fails, restarts or is full."
        yield (*key, *(("runtime", "replicas") if started else ("replicas",))), what, "Add a second one."


def same_address(key: Key, model: ModelConfig) -> Findings:
    """two replicas at one address"""
    seen: Counter[str] = Counter()
    for place, replica in enumerate(model.replicas):
        where = str(replica_address(replica.url))
        seen[where] += 1
        if seen[where] == 2:
            what = f"{where} is there more than once and gets the load of several."
            yield (*key, "replicas", place), what, "Name it once, with a higher weight if it is larger."


def no_slo(key: Key, model: ModelConfig) -> Findings:
    """no `slo`"""
    if model.slo is None and model.autoscale is None:  # which needs it, and is told so
        what = "No `slo` is set, so reports and alerts have no target."
        yield key, what, "Add slo, for example {latency: 2s, percentile: 99, availability: 99.9}."


def retry_budget(key: Key, model: ModelConfig) -> Findings:
    """retries with hardly a limit"""
    if model.retry.max_attempts > 1 and model.retry.budget >= HIGH_RETRY_BUDGET:
        what = (
            f"A failing fleet gets up to {1 + model.retry.budget:.3g} times the requests, and less chance to recover."
        )
        yield (*key, "retry", "budget"), what, "Use 20% or less."


def retry_attempts(key: Key, model: ModelConfig) -> Findings:
    """very many attempts"""
    if model.retry.max_attempts > MAX_SENSIBLE_ATTEMPTS:
        what = f"A request that breaks replicas is sent to up to {model.retry.max_attempts} of them."
        yield (*key, "retry", "max_attempts"), what, "Use 2 or 3: the third seldom helps where two failed."


def hedged_twice(key: Key, model: ModelConfig) -> Findings:
    """hedging of requests that are not idempotent"""
    if model.hedge.enabled and model.idempotent is False:
        what = "A hedged request runs on two replicas, and idempotent: false says that it must not."
        yield (*key, "hedge"), what, "Turn one of the two off."


def unverified_tls(key: Key, model: ModelConfig) -> Findings:
    """`verify: false`"""
    if not model.tls.verify:
        what = "Any host between the gateway and a replica can answer in its place."
        yield (*key, "tls", "verify"), what, "Name the authority of the replicas' certificates as tls.ca."


def unused_tls(key: Key, model: ModelConfig) -> Findings:
    """TLS settings for replicas without TLS"""
    if model.tls != ReplicaTlsConfig() and not _may_use_tls(model):
        yield (*key, "tls"), "No replica has an https URL, so this changes nothing.", "Write https:// in their URLs."


def _may_use_tls(model: ModelConfig) -> bool:
    """Replicas from a file, or that register, may have https URLs."""
    if not model.replicas and not model.discovery and model.runtime is None:
        return True
    if model.runtime is not None and model.runtime.may_use_tls:
        return True
    found = any(source.may_use_tls for source in model.discovery)
    return found or any(replica_address(replica.url).tls for replica in model.replicas)


def may_generate(model: ModelConfig) -> bool:
    """A dialect that is told by the path may be OpenAI's."""
    return not model.dialect or issubclass(find_dialect(model.dialect), OpenAI)


def is_plain_http(model: ModelConfig) -> bool:
    """Nothing is known of its requests but what HTTP says."""
    return bool(model.dialect) and issubclass(find_dialect(model.dialect), PlainHttp) and model.dialect != "torchserve"
