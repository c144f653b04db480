"""The rules of one model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from random import Random
from typing import Any

import msgspec

from ...addresses import is_host, replica_address
from ...core.errors import OptionError
from ...core.options import HedgeOptions, OutlierDetectionOptions, PoolOptions, RetryOptions
from ...core.policies import POLICIES, find_policy, make_policy
from ...documents import Key, Problem, did_you_mean, did_you_mean_or_list
from ...protocols import DIALECTS, find_dialect
from ..formats import option_problems, path_error, target_error, zero_problems
from ..sections.root import Config, ModelConfig, ReplicaConfig
from .admin import gateway_address_error
from .autoscale import autoscale_problems
from .health import MIN_INTERVAL_SECONDS, probe_problems
from .memory import placement_problems
from .runtime import runtime_problems

_REPLICA_NAME = re.compile(r"[\x21-\x7e]{1,128}")  # replicas are named in response headers
_PART_NAMES = {"outlier_detection", "retry", "hedge"}  # of PoolOptions: structs of their own
_DIALECT_BY_SERVER = {
    **dict.fromkeys(("mlserver", "kserve", "ovms"), "oip"),
    **dict.fromkeys(("ollama", "llama.cpp", "llamacpp", "llama-cpp-python", "lmstudio"), "openai"),
    **dict.fromkeys(("litserve", "fastapi", "flask"), "http"),
    **dict.fromkeys(("ray", "ray-serve", "ray_serve"), "rayserve"),
    "bento": "bentoml",
}


def model_problems(key: Key, model: ModelConfig, config: Config) -> Iterator[Problem]:
    for rule in (_dialect, _policy, _options, _paths, _timeout_and_slo, probe_problems, _discovery, _tls):
        yield from rule(key, model)
    yield from _replicas(key, model, config)
    yield from placement_problems(key, model, config)
    yield from runtime_problems(key, model, config)
    yield from autoscale_problems(key, model)


def _dialect(key: Key, model: ModelConfig) -> Iterator[Problem]:
    name = model.dialect
    if not name or name in DIALECTS:
        return
    if name.lower() in _DIALECT_BY_SERVER:
        spoken = _DIALECT_BY_SERVER[name.lower()]
        yield Problem((*key, "dialect"), f"no dialect {name!r}: servers of that name speak {spoken}; write {spoken}")
        return
    if name.lower() in DIALECTS:
        yield Problem((*key, "dialect"), f"no dialect {name!r} (did you mean `{name.lower()}`?)")
        return
    try:
        find_dialect(name)
    except OptionError as problem:
        yield Problem((*key, "dialect"), _did_you_mean("dialect", name, DIALECTS) or str(problem))


def _policy(key: Key, model: ModelConfig) -> Iterator[Problem]:
    try:
        kind = find_policy(model.policy)
    except OptionError as problem:
        yield Problem((*key, "policy"), _did_you_mean("policy", model.policy, POLICIES) or str(problem))
        return
    name, given, here = model.policy, model.policy_options, (*key, "policy_options")
    yield from option_problems(here, name, kind, given, lambda: make_policy(name, Random(0), given))


def _did_you_mean(what: str, name: str, known: Iterable[str]) -> str:
    close = did_you_mean(name, known)
    return f"no {what} {name!r}{close}" if close else ""


def _options(key: Key, model: ModelConfig) -> Iterator[Problem]:
    """What the core checks, each part by itself, so that one mistake does not hide another."""
    yield from _option_errors(key, OutlierDetectionOptions, **msgspec.structs.asdict(model.outlier_detection))
    yield from _option_errors(key, RetryOptions, **msgspec.structs.asdict(model.retry))
    yield from _option_errors(key, HedgeOptions, **msgspec.structs.asdict(model.hedge))
    names = {option.name for option in fields(PoolOptions)} & set(model.__struct_fields__) - _PART_NAMES
    given = {name: value for name in names if (value := getattr(model, name)) is not None}
    yield from _option_errors(key, PoolOptions, **given)
    yield from zero_problems((*key, "outlier_detection"), model.outlier_detection, "slow_duration")


def _option_errors(key: Key, make: Callable[..., object], **options: Any) -> Iterator[Problem]:
    try:
        make(**options)
    except OptionError as problem:
        option, _, what = str(problem).partition(": ")  # `retry.initial_tokens: must be …`
        yield Problem((*key, *option.split(".")), what)


def _paths(key: Key, model: ModelConfig) -> Iterator[Problem]:
    for place, path in enumerate(model.paths):
        if what := path_error(path):
            yield Problem((*key, "paths", place), what)
        elif path in model.paths[:place]:
            yield Problem((*key, "paths", place), f"{path!r} is there twice")


def _timeout_and_slo(key: Key, model: ModelConfig) -> Iterator[Problem]:
    yield from zero_problems(key, model, "timeout")
    slo = model.slo
    if slo is None:
        return
    yield from zero_problems((*key, "slo"), slo, "latency", "first_byte", "per_token")
    if slo.latency is slo.first_byte is slo.per_token is slo.availability is None:
        yield Problem((*key, "slo"), "sets no target: give latency, first_byte, per_token or availability")


def _discovery(key: Key, model: ModelConfig) -> Iterator[Problem]:
    for place, source in enumerate(model.discovery):
        here: Key = (*key, "discovery", place)
        yield from source.problems(here)
        if source.interval < MIN_INTERVAL_SECONDS:
            yield Problem((*here, "interval"), "must be at least 10ms")
        if (first := model.discovery.index(source)) != place:
            yield Problem(here, f"is the same as discovery[{first}]")


def _tls(key: Key, model: ModelConfig) -> Iterator[Problem]:
    tls = model.tls
    if bool(tls.certificate) != bool(tls.key):
        missing, there = ("key", "certificate") if tls.certificate else ("certificate", "key")
        yield Problem((*key, "tls", there), f"certificate and key go together: add {missing}")
    if tls.server_name and not is_host(tls.server_name):
        yield Problem((*key, "tls", "server_name"), f"{tls.server_name!r} is not a host name")
    if not tls.verify and (tls.ca or tls.server_name):
        yield Problem((*key, "tls", "verify"), "false makes ca and server_name useless: leave it out, or them")


def _replicas(key: Key, model: ModelConfig, config: Config) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for place, replica in enumerate(model.replicas):
        here: Key = (*key, "replicas", place)
        if config.devices and replica.device and replica.device not in config.devices:
            hint = did_you_mean_or_list(replica.device, config.devices, otherwise="there are")
            yield Problem((*here, "device"), f"no {replica.device!r} under devices{hint}")
        found = list(replica_problems(here, replica))
        yield from found
        if any(problem.key[-1] == "url" for problem in found):
            continue  # it may have no name
        if what := gateway_address_error(replica_address(replica.url), config):
            yield Problem((*here, "url"), what)
        name = replica.name
        if seen.setdefault(name, place) != place:
            yield Problem(here, f"{name!r} is the name of replicas[{seen[name]}] too; give each an id of its own")


def replica_problems(key: Key, replica: ReplicaConfig) -> Iterator[Problem]:
    """Of one replica, wherever it comes from."""
    if replica.ready and (what := target_error(replica.ready)):
        yield Problem((*key, "ready"), what)
    try:
        replica_address(replica.url)
    except ValueError as problem:
        yield Problem((*key, "url"), str(problem))
        return
    name = replica.name
    if not _REPLICA_NAME.fullmatch(name):
        what = f"{name!r}: the name of a replica has 1 to 128 characters of ASCII, without spaces; give it an id"
        yield Problem((*key, "id" if replica.id else "url"), what)
