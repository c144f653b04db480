"""Configurations without a file, and files with some of their values overridden on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ..core.errors import OptionError
from ..documents import Key, Seconds, encode_value, type_problems
from .commands import missing_program_error
from .files import token_problems
from .rules.gateway import find_problems
from .sections.root import ANY_MODEL, Concurrency, Config, ModelConfig, ReplicaConfig
from .sections.runtime import RuntimeConfig
from .sections.scaling import AutoscaleConfig

ADMIN_OFF = "off"  # what turns the admin API off on the command line, where an empty text is easily lost

# The end of a key path, and the flag that sets it.
_FLAG_OF_KEY: dict[Key, str] = {
    ("admin", "listen"): "--admin",
    ("admin", "token_file"): "--admin-token-file",
    ("health", "path"): "--health-path",
    ("dialect",): "--dialect",
    ("idempotent",): "--idempotent",
    ("listen",): "--listen",
    ("workers",): "--workers",
    ("policy",): "--policy",
    ("policy_options",): "--policy",
    ("concurrency",): "--concurrency",
    ("queue_timeout",): "--queue-timeout",
    ("runtime", "replicas"): "--scale",
    ("autoscale",): "--scale",
    ("runtime",): "--start",
    ("replicas",): "--replica",
    ("models",): "--model",
}


def from_replicas(
    urls: Iterable[str],
    *,
    start: str | None = None,
    scale: str | None = None,
    model: str = ANY_MODEL,
    policy: str | None = None,
    concurrency: Concurrency | None = None,
    queue_timeout: Seconds | None = None,
    listen: str | tuple[str, ...] | None = None,
    workers: int | None = None,
    health_path: str | None = None,
    dialect: str | None = None,
    idempotent: bool | None = None,
    admin: str | None = None,
    admin_token_file: str | None = None,
) -> Config:
    """The configuration of `steelyard serve --replica URL … --start COMMAND`. OptionError names the flag that is
    wrong."""
    replicas = tuple(ReplicaConfig(url=url) for url in urls)
    if not replicas and start is None:
        raise OptionError("--replica: name at least one, for example http://10.0.0.1:8000")
    if scale is not None and start is None:
        raise OptionError("--scale: nobody starts replicas: say with --start how")
    return with_overrides(
        Config(
            models={
                model: ModelConfig(replicas=replicas, **(_runtime_settings(start, scale) if start is not None else {}))
            }
        ),
        listen=listen,
        workers=workers,
        policy=policy,
        concurrency=concurrency,
        queue_timeout=queue_timeout,
        health_path=health_path,
        dialect=dialect,
        idempotent=idempotent,
        admin=admin,
        admin_token_file=admin_token_file,
    )


def _runtime_settings(command: str, scale: str | None) -> dict[str, Any]:
    """What `--start` and `--scale` say of a model. The command is run where it was given, as every shell would."""
    found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", "1" if scale is None else scale)
    if found is None:
        raise OptionError(f"--scale: {scale!r}: write how many for example as 3, or from least to most as 1-4")
    folder = str(Path.cwd())
    if what := missing_program_error(command, folder, {}):  # `steelyard check` does not see a command line
        raise OptionError(f"--start: {what}")
    runtime = RuntimeConfig.struct_of("process")(command=command, working_directory=folder)
    if found[2] is not None:
        least, most = int(found[1]), int(found[2])
        if most < max(1, least):
            raise OptionError(f"--scale: {scale!r}: the most is at least {max(1, least)} here: write for example 1-4")
        return {"runtime": runtime, "autoscale": AutoscaleConfig(min=least, max=most)}
    if not int(found[1]):
        raise OptionError("--scale: 0 replicas serve nothing: write 0-4 to have them started when they are needed")
    return {"runtime": msgspec.structs.replace(runtime, replicas=int(found[1]))}


def with_overrides(
    config: Config,
    *,
    listen: str | tuple[str, ...] | None = None,
    workers: int | None = None,
    policy: str | None = None,
    concurrency: Concurrency | None = None,
    queue_timeout: Seconds | None = None,
    health_path: str | None = None,
    dialect: str | None = None,
    idempotent: bool | None = None,
    admin: str | None = None,
    admin_token_file: str | None = None,
) -> Config:
    """A configuration with what the command line says instead; what is of models is for all of them."""
    said = _not_none(
        policy=policy, concurrency=concurrency, queue_timeout=queue_timeout, dialect=dialect, idempotent=idempotent
    )
    models = {name: _with_model_overrides(model, said, health_path) for name, model in config.models.items()}
    token_file = None if admin_token_file is None else _token_file(admin_token_file)
    given = _not_none(listen="" if admin == ADMIN_OFF else admin, token_file=token_file)
    changes = _not_none(
        models=models, listen=listen, workers=workers, admin=msgspec.structs.replace(config.admin, **given)
    )
    return _valid(msgspec.structs.replace(config, **changes))


def _with_model_overrides(model: ModelConfig, said: dict[str, Any], health_path: str | None) -> ModelConfig:
    changes = dict(said)
    if changes.get("policy", model.policy) != model.policy:
        changes["policy_options"] = {}  # they were another policy's
    if health_path is not None:
        changes["health"] = msgspec.structs.replace(model.health, path=health_path)
    return msgspec.structs.replace(model, **changes)


def _token_file(path: str) -> str:
    """From where the command was given, as every path on a command line."""
    whole = str(Path(path).absolute()) if path else ""
    for problem in token_problems((), whole) if whole else ():
        raise OptionError(f"--admin-token-file: {problem.what}")
    return whole


def _not_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _valid(config: Config) -> Config:
    data = msgspec.to_builtins(config, enc_hook=encode_value)
    for problem in (*type_problems(data, Config), *find_problems(config)):
        raise OptionError(f"{_flag_of(problem.key)}: {problem.what}")
    return config


def _flag_of(key: Key) -> str:
    """Of the longest part of the key path that a flag sets."""
    for end in range(len(key), 0, -1):
        for names, flag in _FLAG_OF_KEY.items():
            if key[:end][-len(names) :] == names:
                return flag
    raise AssertionError(f"no flag sets {key}")
