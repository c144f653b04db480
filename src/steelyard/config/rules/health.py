"""The rules of what Steelyard itself asks of replicas: probes, inferences, warm-ups, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...addresses import replica_address
from ...documents import Key, Problem, did_you_mean_or_list
from ..formats import header_problems, is_serializable, is_token, target_error, zero_problems
from ..sections.health import HealthConfig, SyntheticRequest
from ..sections.root import ModelConfig

PLACEHOLDERS = ("url", "host", "port", "id", "model")
MIN_INTERVAL_SECONDS = 0.01  # between two probes; less is a mistake
MIN_METRICS_INTERVAL_SECONDS = 1.0  # some engines hang when their metrics are read all the time
_PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z_]+)\}")  # not ${name}, which is a shell's
_REPLACED_BY_COMMAND = ("path", "live_path", "inference")  # what a command takes the place of


def probe_problems(key: Key, model: ModelConfig) -> Iterator[Problem]:
    for rule in (_paths, _command, _requests, _ports):
        yield from rule(key, model)
    yield from _times((*key, "health"), model.health)
    if model.load_metrics.interval < MIN_METRICS_INTERVAL_SECONDS:
        yield Problem((*key, "load_metrics", "interval"), "must be at least 1s")


def _paths(key: Key, model: ModelConfig) -> Iterator[Problem]:
    for part, name in (("health", "path"), ("health", "live_path"), ("load_metrics", "path")):
        path = getattr(getattr(model, part), name)
        if path and (what := target_error(path)):
            yield Problem((*key, part, name), what)


def _command(key: Key, model: ModelConfig) -> Iterator[Problem]:
    command = model.health.command
    if not command:
        return
    for name in _REPLACED_BY_COMMAND:
        if getattr(model.health, name):
            yield Problem((*key, "health", name), "command is asked instead: leave one of the two out")
    for place, replica in enumerate(model.replicas):
        if replica.ready:
            what = "health.command is asked instead: leave one of the two out"
            yield Problem((*key, "replicas", place, "ready"), what)
    if not command[0]:
        yield Problem((*key, "health", "command", 0), "name a program")
    for place, argument in enumerate(command):
        here: Key = (*key, "health", "command", place)
        if "\0" in argument:
            yield Problem(here, "an argument of a program has no NUL in it")
        for name in _PLACEHOLDER.findall(argument):
            if name not in PLACEHOLDERS:
                hint = did_you_mean_or_list(name, PLACEHOLDERS, otherwise="there are")
                yield Problem(here, f"nothing is known as {{{name}}}{hint}")


def _requests(key: Key, model: ModelConfig) -> Iterator[Problem]:
    key = (*key, "health")
    yield from header_problems((*key, "headers"), model.health.headers)
    if model.health.inference is not None:
        yield from _request((*key, "inference"), model.health.inference)
    for place, asking in enumerate(model.health.warm_up):
        yield from _request((*key, "warm_up", place), asking)


def _request(key: Key, asking: SyntheticRequest) -> Iterator[Problem]:
    if what := target_error(asking.path):
        yield Problem((*key, "path"), what)
    if asking.method and (what := _method_error(asking.method)):
        yield Problem((*key, "method"), what)
    yield from header_problems((*key, "headers"), asking.headers)
    if not is_serializable(asking.body):
        yield Problem((*key, "body"), "must be text, numbers, true or false, or lists and mappings of these")
    yield from zero_problems(key, asking, "timeout")


def _method_error(method: str) -> str:
    if not is_token(method) or method.upper() == "CONNECT":
        return f"{method!r} is not a method: write for example POST"
    return f"{method!r}: methods are written in capitals: {method.upper()}" if method != method.upper() else ""


def _ports(key: Key, model: ModelConfig) -> Iterator[Problem]:
    """A Unix socket has none."""
    given = [name for name, port in (("health", model.health.port), ("load_metrics", model.load_metrics.port)) if port]
    for place, replica in enumerate(model.replicas) if given else ():
        try:
            unix = replica_address(replica.url).path
        except ValueError:
            continue  # reported elsewhere
        for name in given if unix else ():
            yield Problem((*key, name, "port"), f"replicas[{place}] is a Unix socket, which has no ports")


def _times(key: Key, health: HealthConfig) -> Iterator[Problem]:
    for name in ("interval", "loading_interval"):
        if getattr(health, name) < MIN_INTERVAL_SECONDS:
            yield Problem((*key, name), "must be at least 10ms")
    yield from zero_problems(key, health, "timeout")
