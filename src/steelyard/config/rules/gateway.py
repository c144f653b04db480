"""Checks beyond types: impossible values, and values that contradict each other. Reads no file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...addresses import listen_address
from ...documents import Key, Problem, format_key
from ...units import format_size
from ..formats import FRAMING_HEADERS, is_token, network_hint, parse_network
from ..sections.base import LimitsConfig
from ..sections.root import Config
from ..sections.tenants import tenant_problems
from .admin import admin_problems
from .autoscale import load_board_problems
from .memory import device_problems, server_problems
from .model import model_problems
from .observability import slo_problems, tracing_problems

_ZERO_ALLOWED = {"replay_bytes", "drain"}
_MAX_MODEL_NAME_CHARS = 256
_GATEWAY_NAME = re.compile(r"[\x21-\x7e]{0,128}")


def list_problems(config: Config) -> list[tuple[str, str]]:
    """Each as key path and what is wrong with it."""
    return [(format_key(problem.key), problem.what) for problem in find_problems(config)]


def find_problems(config: Config) -> Iterator[Problem]:
    for rule in _RULES:
        yield from rule(config)


def _listen(config: Config) -> Iterator[Problem]:
    if not config.listen_texts:
        yield Problem(("listen",), "name at least one address, for example 127.0.0.1:8080")
    seen = set()
    for place, text in enumerate(config.listen_texts):
        key: Key = ("listen",) if isinstance(config.listen, str) else ("listen", place)
        try:
            address = listen_address(text)
        except ValueError as problem:
            yield Problem(key, str(problem))
            continue
        if address in seen and (address.port or address.path):
            yield Problem(key, f"{text!r} is there twice")
        seen.add(address)


def _name(config: Config) -> Iterator[Problem]:
    if not _GATEWAY_NAME.fullmatch(config.name):
        what = f"{config.name!r}: the name of a gateway has at most 128 characters of ASCII, without spaces"
        yield Problem(("name",), what)


def _trusted(config: Config) -> Iterator[Problem]:
    for place, text in enumerate(config.trusted_proxies):
        if parse_network(text) is None:
            meant = network_hint(text) or ": write for example 10.0.0.0/8, 192.168.1.7 or fd00::/8"
            yield Problem(("trusted_proxies", place), f"{text!r} is not a network{meant}")


def _tenant_header(config: Config) -> Iterator[Problem]:
    name = config.tenant_header
    if name and not is_token(name):
        yield Problem(("tenant_header",), f"{name!r} is not the name of a header: write for example x-tenant")
    elif name.lower() in FRAMING_HEADERS:
        yield Problem(
            ("tenant_header",), f"{name!r} says how to read a request, not whose it is: write for example x-tenant"
        )


def _tenants(config: Config) -> Iterator[Problem]:
    yield from tenant_problems(config.tenants)


def _limits(config: Config) -> Iterator[Problem]:
    limits = config.limits
    for name in ("header_bytes", "body_bytes", "connection_buffer_bytes", "total_buffer_bytes"):
        if getattr(limits, name) == 0:
            yield Problem(("limits", name), "must be more than 0")
    if limits.replay_bytes == LimitsConfig().replay_bytes:
        return  # who makes bodies smaller need not think of it
    for name in ("body_bytes", "total_buffer_bytes"):
        if 0 < getattr(limits, name) < limits.replay_bytes:
            most = f"limits.{name} ({format_size(getattr(limits, name))})"
            yield Problem(("limits", "replay_bytes"), f"must be at most {most}, not {format_size(limits.replay_bytes)}")


def _timeouts(config: Config) -> Iterator[Problem]:
    for name in config.timeouts.__struct_fields__:
        if getattr(config.timeouts, name) == 0 and name not in _ZERO_ALLOWED:
            yield Problem(("timeouts", name), "must be more than 0")


def _files(config: Config) -> Iterator[Problem]:
    if config.tls is not None:
        for name in ("certificate", "key"):
            if not getattr(config.tls, name):
                yield Problem(("tls", name), "name a file")
    if config.access_log is not None and not config.access_log.path:
        yield Problem(("access_log", "path"), "name a file, or - for standard output")


def _models(config: Config) -> Iterator[Problem]:
    if not config.models:
        yield Problem(("models",), "name at least one model")
    taken: dict[str, str] = {}
    for name, model in config.models.items():
        key: Key = ("models", name)
        if not name or len(name) > _MAX_MODEL_NAME_CHARS or not name.isprintable():
            yield Problem(key, f"a model's name has 1 to {_MAX_MODEL_NAME_CHARS} characters, all of them printable")
        yield from model_problems(key, model, config)
        for place, path in enumerate(model.paths):
            other = taken.setdefault(path.rstrip("/"), name)
            if other != name:
                yield Problem((*key, "paths", place), f"{path!r} is a path of the model {other!r} too")


_RULES = (
    _name,
    _listen,
    _trusted,
    _tenant_header,
    _tenants,
    _limits,
    _timeouts,
    _files,
    admin_problems,
    tracing_problems,
    device_problems,
    _models,
    slo_problems,
    server_problems,
    load_board_problems,
)
