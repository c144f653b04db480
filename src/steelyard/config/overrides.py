"""Configurations from the command line: without a file, or with some of its values overridden."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec

from ..core.errors import OptionError
from ..documents import Key, Seconds, encode_value, type_problems
from .commands import missing_program_error
from .files import STDOUT, log_problems, token_problems
from .rules.gateway import find_problems
from .sections.base import AccessLogConfig
from .sections.root import ANY_MODEL, Concurrency, Config, ModelConfig, ReplicaConfig, default_policy
from .sections.runtime import RuntimeConfig
from .sections.scaling import AutoscaleConfig

ADMIN_OFF = "off"  # what turns the admin API off on the command line, where an empty text is easily lost

_FLAG_OF_KEY: dict[Key, str] = {  # by the end of a key path
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


class Overrides(TypedDict, total=False):
    """Flags of the command line; None: not given."""

    listen: str | tuple[str, ...] | None
    workers: int | None
    policy: str | None
    concurrency: Concurrency | None
    queue_timeout: Seconds | None
    health_path: str | None
    dialect: str | None
    idempotent: bool | None
    admin: str | None
    admin_token_file: str | None
    access_log: str | None


_MODEL_OVERRIDES = ("policy", "concurrency", "queue_timeout", "dialect", "idempotent")


def from_replicas(
    urls: Iterable[str],
    *,
    start: str | None = None,
    scale: str | None = None,
    model: str = ANY_MODEL,
    **overrides: Unpack[Overrides],
) -> Config:
    """The configuration of `serve --replica URL … --start COMMAND`. OptionError names the wrong flag."""
    replicas = tuple(ReplicaConfig(url=url) for url in urls)
    if scale is not None and start is None:
        raise OptionError("--scale: nothing starts replicas: add --start COMMAND")
    if not replicas and start is None:
        raise OptionError("--replica: name at least one, for example http://10.0.0.1:8000")
    started = {} if start is None else _runtime_settings(start, scale)
    return with_overrides(Config(models={model: ModelConfig(replicas=replicas, **started)}), **overrides)


def _runtime_settings(command: str, scale: str | None) -> dict[str, Any]:
    """The command runs where it was given, as in a shell."""
    found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", "1" if scale is None else scale)
    if found is None:
        raise OptionError(f"--scale: {scale!r}: write how many for example as 3, or from least to most as 1-4")
    folder = str(Path.cwd())
    if what := missing_program_error(command, folder, {}):  # `steelyard check` does not see a command line
        raise OptionError(f"--start: {what}")
    runtime = RuntimeConfig.struct_of("process")(command=command, working_directory=folder)
    if found[2] is not None:
        least, most = int(found[1]), int(found[2])
        if not most:
            raise OptionError(f"--scale: {scale!r} never starts a replica: write for example 0-4")
        if most < least:
            raise OptionError(f"--scale: {scale!r}: the least comes first: write {most}-{least}")
        return {"runtime": runtime, "autoscale": AutoscaleConfig(min=least, max=most)}
    if not int(found[1]):
        raise OptionError("--scale: 0 replicas serve nothing: write 0-4 to have them started when they are needed")
    return {"runtime": msgspec.structs.replace(runtime, replicas=int(found[1]))}


def with_overrides(config: Config, **overrides: Unpack[Overrides]) -> Config:
    """The flags of models apply to all of them."""
    given: dict[str, Any] = {name: value for name, value in overrides.items() if value is not None}
    models = {name: _with_model_overrides(model, given) for name, model in config.models.items()}
    admin = {}
    if "admin" in given:
        admin["listen"] = "" if given["admin"] == ADMIN_OFF else given["admin"]
    if "admin_token_file" in given:
        admin["token_file"] = _token_file(given["admin_token_file"])
    changes: dict[str, Any] = {name: given[name] for name in ("listen", "workers") if name in given}
    if "access_log" in given:
        changes["access_log"] = _access_log(config, given["access_log"])
    changes |= {"models": models, "admin": msgspec.structs.replace(config.admin, **admin)}
    return _valid(msgspec.structs.replace(config, **changes))


def _with_model_overrides(model: ModelConfig, given: dict[str, Any]) -> ModelConfig:
    changes = {name: given[name] for name in _MODEL_OVERRIDES if name in given}
    if "dialect" in changes and "policy" not in changes and model.policy == default_policy(model.dialect):
        changes["policy"] = default_policy(changes["dialect"])
    if changes.get("policy", model.policy) != model.policy:
        changes["policy_options"] = {}  # they were another policy's
    if "health_path" in given:
        changes["health"] = msgspec.structs.replace(model.health, path=given["health_path"])
    return msgspec.structs.replace(model, **changes)


def _token_file(path: str) -> str:
    whole = str(Path(path).absolute()) if path else ""
    for problem in token_problems((), whole) if whole else ():
        raise OptionError(f"--admin-token-file: {problem.what}")
    return whole


def _access_log(config: Config, path: str) -> AccessLogConfig:
    if not path:
        raise OptionError("--access-log: name a file, or - for standard output")
    for problem in log_problems((), Path(path)) if path != STDOUT else ():
        raise OptionError(f"--access-log: {problem.what}")
    form = config.access_log.format if config.access_log else AccessLogConfig(path=path).format
    return AccessLogConfig(path=path, format=form)


def _valid(config: Config) -> Config:
    data = msgspec.to_builtins(config, enc_hook=encode_value)
    for problem in (*type_problems(data, Config), *find_problems(config)):
        raise OptionError(f"{_flag_of(problem.key)}: {problem.what}")
    return config


def _flag_of(key: Key) -> str:
    """The flag of the longest part of the key path that has one."""
    for end in range(len(key), 0, -1):
        for names, flag in _FLAG_OF_KEY.items():
            if key[:end][-len(names) :] == names:
                return flag
    raise AssertionError(f"no flag sets {key}")
