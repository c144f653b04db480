"""The rules of the gateway as a whole. Reads no file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...addresses import listen_address
from ...documents import Key, Problem
from ...units import format_size
from ..formats import FRAMING_HEADERS, is_token, name_problems, network_problems, parse_network, zero_problems
from ..sections.base import LimitsConfig
from ..sections.root import Config
from .admin import admin_problems
from .autoscale import shared_memory_problems
from .memory import device_problems, server_problems
from .model import model_problems
from .observability import slo_problems, tracing_problems

ANY_OTHER_TENANT = "*"
_GATEWAY_NAME = re.compile(r"[\x21-\x7e]{0,128}")


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
        what = "the name of a gateway has at most 128 characters of ASCII, without spaces"
        yield Problem(("name",), f"{config.name!r}: {what}")


def _trusted(config: Config) -> Iterator[Problem]:
    yield from network_problems(("trusted_proxies",), config.trusted_proxies)


def _tenant_header(config: Config) -> Iterator[Problem]:
    name = config.tenant_header
    if name and not is_token(name):
        yield Problem(("tenant_header",), f"{name!r} is not the name of a header: write for example x-tenant")
    elif not name and not config.tenants:
        for model, settings in config.models.items():
            if settings.cache_salt == "tenant":
                what = "no `tenant_header` and no `tenants` tell the tenant of a request: set one of them"
                yield Problem(("models", model, "cache_salt"), what)
    elif name.lower() in FRAMING_HEADERS:
        what = "says how to read a request, not its tenant: write for example x-tenant"
        yield Problem(("tenant_header",), f"{name!r} {what}")


def tenant_problems(config: Config) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for name, tenant in config.tenants.items():
        key: Key = ("tenants", name)
        yield from name_problems(key, "the name of a tenant")
        if name == ANY_OTHER_TENANT and tenant.networks:
            what = f"{ANY_OTHER_TENANT} stands for all other tenants: give their networks a name"
            yield Problem((*key, "networks"), what)
        yield from network_problems((*key, "networks"), tenant.networks)
        for place, text in enumerate(tenant.networks):
            network = parse_network(text)
            if network is not None and (other := taken.setdefault(str(network), name)) != name:
                yield Problem((*key, "networks", place), f"{text!r} is a network of the tenant {other!r} too")


def _limits(config: Config) -> Iterator[Problem]:
    limits = config.limits
    sizes = ("header_bytes", "body_bytes", "connection_buffer_bytes", "total_buffer_bytes")
    yield from zero_problems(("limits",), limits, *sizes)
    if limits.replay_bytes == LimitsConfig().replay_bytes:
        return  # smaller bodies alone are no mistake
    for name in ("body_bytes", "total_buffer_bytes"):
        if 0 < getattr(limits, name) < limits.replay_bytes:
            most = f"limits.{name} ({format_size(getattr(limits, name))})"
            yield Problem(("limits", "replay_bytes"), f"must be at most {most}, not {format_size(limits.replay_bytes)}")


def _timeouts(config: Config) -> Iterator[Problem]:
    names = [name for name in config.timeouts.__struct_fields__ if name != "drain"]
    yield from zero_problems(("timeouts",), config.timeouts, *names)


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
        yield from name_problems(key, "a model's name")
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
    tenant_problems,
    _limits,
    _timeouts,
    _files,
    admin_problems,
    tracing_problems,
    device_problems,
    _models,
    slo_problems,
    server_problems,
    shared_memory_problems,
)
