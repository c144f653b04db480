"""The rules of replicas that Steelyard starts itself. That a program is there is for `steelyard check` to look at."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...addresses import replica_address
from ...documents import Key, Problem, did_you_mean_or_list
from ..commands import fill_in, placeholder_error, split_command, uses_placeholder
from ..sections.root import ANY_MODEL, Config, ModelConfig
from ..sections.scaling import RuntimeConfig

RESERVED_VARIABLE_PREFIX = "STEELYARD_"
_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_MIN_PORT, _MAX_PORT = 1024, 65535  # ports that need no rights of their own
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DEVICE_EXAMPLE = 'gpu0: {gpu: "0"}'


def runtime_problems(key: Key, model: ModelConfig, config: Config) -> Iterator[Problem]:
    runtime = model.runtime
    if runtime is None:
        return
    here: Key = (*key, "runtime")
    yield from _conflicts(key, model)
    wrong_words = [*_command(here, runtime), *_environment(here, runtime)]
    yield from wrong_words
    yield from _url(here, model, runtime)
    if not wrong_words:
        yield from _placeholder_use(key, runtime)
    yield from _devices(here, runtime, config)
    for name in ("start_timeout", "stop_timeout", "log_size"):
        if not getattr(runtime, name):
            yield Problem((*here, name), "must be more than 0")


def max_started(model: ModelConfig) -> float:
    """Replicas that there may be one day, besides those that are listed or found."""
    if model.runtime is None:
        return 0
    if model.autoscale is None or model.autoscale.mode != "act":
        return model.runtime.replicas
    return float("inf") if model.autoscale.max is None else model.autoscale.max


def port_range(text: str) -> tuple[int, int]:
    """First and last. ValueError says what is wrong."""
    found = _PORT_RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a range of ports: write for example 20000-29999")
    first, last = int(found[1]), int(found[2])
    if not (_MIN_PORT <= first <= _MAX_PORT and _MIN_PORT <= last <= _MAX_PORT):
        raise ValueError(f"{text!r}: a port for a replica is from {_MIN_PORT} to {_MAX_PORT}")
    if last < first:
        raise ValueError(f"{text!r}: the range ends before it begins")
    return first, last


def _conflicts(key: Key, model: ModelConfig) -> Iterator[Problem]:
    """What does not go with it."""
    if model.placement is not None:
        what = "a model is started by us or loaded on servers that run already: leave out runtime or placement"
        yield Problem((*key, "runtime"), what)
    elif not model.health.enabled:  # with placement that is told already
        what = "must not be false with runtime: a probe sees when what was started is ready"
        yield Problem((*key, "health", "enabled"), what)
    for part, port in (("health", model.health.port), ("load_metrics", model.load_metrics.port)):
        if port and max_started(model) > 1:
            what = "all replicas that are started on this machine would be asked at this one port: leave it out"
            yield Problem((*key, part, "port"), what)


def _command(key: Key, runtime: RuntimeConfig) -> Iterator[Problem]:
    here: Key = (*key, "command")
    try:
        split_command(runtime.command)
    except ValueError as problem:
        yield Problem(here, str(problem))
        return
    command = runtime.command
    for place, text in enumerate([command] if isinstance(command, str) else command):
        where: Key = here if text is command else (*here, place)
        if "\0" in text:
            yield Problem(where, "a word of a command has no NUL in it")
        if what := placeholder_error(text):
            yield Problem(where, what)


def _environment(key: Key, runtime: RuntimeConfig) -> Iterator[Problem]:
    for name, value in runtime.environment.items():
        where: Key = (*key, "environment", name)
        if not _VARIABLE.fullmatch(name):
            yield Problem(where, f"{name!r} is not the name of a variable: write for example MODEL_PATH")
        elif name.startswith(RESERVED_VARIABLE_PREFIX):
            yield Problem(where, f"{RESERVED_VARIABLE_PREFIX}… is for Steelyard to set: take another name")
        elif "\0" in value:
            yield Problem(where, "a variable has no NUL in it")
        elif what := placeholder_error(value):
            yield Problem(where, what)


def _url(key: Key, model: ModelConfig, runtime: RuntimeConfig) -> Iterator[Problem]:
    try:
        first, last = port_range(runtime.ports)
    except ValueError as problem:
        yield Problem((*key, "ports"), str(problem))
        return
    if what := _url_error(runtime.url, first):
        yield Problem((*key, "url"), what)
        return
    most = max_started(model)
    if not _address_placeholders(runtime) and most > 1:
        same = "socket: use {id}" if runtime.url.startswith("unix:") else "port: use {port}"
        yield Problem((*key, "url"), f"two replicas cannot listen on the same {same}")
    if uses_placeholder(runtime.url, "port") and last - first + 1 < most < float("inf"):
        there = f"{last - first + 1} port{'s' * (last > first)}"
        yield Problem((*key, "ports"), f"{there} for up to {most:.0f} replicas: each needs one of its own")


def _url_error(url: str, port: int) -> str:
    """Empty: it is the address of a replica, once it is filled in."""
    example = {"port": port, "id": "r1"}
    if what := placeholder_error(url):
        return what
    for word in ("model", "device", "gpu", "url"):
        if uses_placeholder(url, word):
            return f"`{{{word}}}` is not filled in here: only `{{port}}` and `{{id}}` are"
    try:
        replica_address(fill_in(url, example))
    except ValueError as problem:
        return str(problem)
    return ""


def _placeholder_use(key: Key, runtime: RuntimeConfig) -> Iterator[Problem]:
    """What is filled in must be there, and whoever is started must learn where to listen."""
    texts = list(_templates(runtime))
    told = _address_placeholders(runtime)
    if told and not any(uses_placeholder(text, word) for text in texts for word in (*told, "url")):
        how, what = ("the port", "{port}") if "port" in told else ("where to listen", "{url}")
        what = f"how should it learn {how}? Put {what} into command or environment"
        yield Problem((*key, "runtime", "command"), what)
    if key[-1:] == (ANY_MODEL,) and any(uses_placeholder(text, "model") for text in texts):
        what = f"{ANY_MODEL} stands for every name, so there is none to put in for {{model}}: give the model its name"
        yield Problem((*key, "runtime", "command"), what)


def _devices(key: Key, runtime: RuntimeConfig, config: Config) -> Iterator[Problem]:
    for place, name in enumerate(runtime.devices):
        where: Key = (*key, "devices", place)
        if name not in config.devices:
            hint = (
                did_you_mean_or_list(name, config.devices, otherwise="there are")
                or f": list it there, for example {_DEVICE_EXAMPLE}"
            )
            yield Problem(where, f"no {name!r} under devices{hint}")
        elif name in runtime.devices[:place]:
            yield Problem(where, f"{name!r} is there twice")


def _address_placeholders(runtime: RuntimeConfig) -> list[str]:
    """The words that make each replica's address another."""
    return [word for word in ("port", "id") if uses_placeholder(runtime.url, word)]


def _templates(runtime: RuntimeConfig) -> Iterator[str]:
    yield from [runtime.command] if isinstance(runtime.command, str) else runtime.command
    yield from runtime.environment.values()
