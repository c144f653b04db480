"""Configurations without a file, and files with some of their values overridden on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..core.errors import OptionError
from ..documents import Key, encode_value, mistakes
from .rules import find_problems
from .shape import ANY, Concurrency, Config, ModelConfig, ReplicaConfig

# The part of a key path that a flag sets.
_FLAGS = {
    "listen": "--listen",
    "workers": "--workers",
    "policy": "--policy",
    "policy_options": "--policy",
    "concurrency": "--concurrency",
    "replicas": "--replica",
    "models": "--model",
}


def from_replicas(
    urls: Iterable[str],
    *,
    model: str = ANY,
    policy: str | None = None,
    concurrency: Concurrency | None = None,
    listen: str | tuple[str, ...] | None = None,
    workers: int | None = None,
) -> Config:
    """The configuration of `steelyard serve --replica URL …`. OptionError names the flag that is wrong."""
    replicas = tuple(ReplicaConfig(url=url) for url in urls)
    if not replicas:
        raise OptionError("--replica: name at least one, for example http://10.0.0.1:8000")
    config = Config(models={model: ModelConfig(replicas=replicas)})
    return overridden(config, listen=listen, workers=workers, policy=policy, concurrency=concurrency)


def overridden(
    config: Config,
    *,
    listen: str | tuple[str, ...] | None = None,
    workers: int | None = None,
    policy: str | None = None,
    concurrency: Concurrency | None = None,
) -> Config:
    """A configuration with what the command line says instead; policy and concurrency are for all its models."""
    models = {name: _balanced(model, policy, concurrency) for name, model in config.models.items()}
    changes = _given(models=models, listen=listen, workers=workers)
    return _valid(msgspec.structs.replace(config, **changes))


def _balanced(model: ModelConfig, policy: str | None, concurrency: Concurrency | None) -> ModelConfig:
    changes = _given(policy=policy, concurrency=concurrency)
    if policy is not None and policy != model.policy:
        changes["policy_options"] = {}  # they were another policy's
    return msgspec.structs.replace(model, **changes)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _valid(config: Config) -> Config:
    data = msgspec.to_builtins(config, enc_hook=encode_value)
    for problem in (*mistakes(data, Config), *find_problems(config)):
        raise OptionError(f"{_flag(problem.key)}: {problem.what}")
    return config


def _flag(key: Key) -> str:
    return next(flag for step in reversed(key) if (flag := _FLAGS.get(str(step))) is not None)
