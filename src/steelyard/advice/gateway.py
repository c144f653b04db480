"""Warnings about the gateway, and about several models together."""

from __future__ import annotations

from collections import defaultdict
from urllib.parse import quote

from ..addresses import listen_address
from ..config import ANY_MODEL, Config, TimeoutsConfig
from ..config.formats import parse_network
from ..documents import Key
from ..units import format_seconds
from .models import Findings, is_plain_http

SERVER_KEEP_ALIVE_SECONDS = 5.0  # of uvicorn, Node and others


def no_tls(config: Config) -> Findings:
    """a gateway without TLS that other machines can reach"""
    open_to = [str(address) for address in config.listen_addresses if not address.is_loopback]
    if open_to and config.tls is None:
        what = f"Other machines can reach {', '.join(open_to)}, and what they send is not encrypted."
        yield ("listen",), what, "Give tls a certificate and key, or listen on 127.0.0.1 behind what ends TLS."


def trusts_all_proxies(config: Config) -> Findings:
    """forwarded headers trusted from everywhere"""
    for place, text in enumerate(config.trusted_proxies):
        if (found := parse_network(text)) is not None and found.prefixlen == 0:
            what = f"{text} is every address, so any client can set its own address, tenant and priority."
            yield ("trusted_proxies", place), what, "Name the networks of your own proxies only."


def unverified_tenants(config: Config) -> Findings:
    """a tenant header that any client may set"""
    vouched = config.trusted_proxies or any(tenant.networks for tenant in config.tenants.values())
    if config.tenant_header and not vouched:
        what = f"Any client may set {config.tenant_header}: it is a label, and the queue is shared by client address."
        do = "Name the proxies that set it in trusted_proxies, or the clients' networks in tenants."
        yield ("tenant_header",), what, do


def unrestricted_priority(config: Config) -> Findings:
    """any tenant may raise its priority"""
    others = config.tenants.get("*")
    if others is not None and others.max_priority > 0:
        what = f"Any tenant that a trusted proxy passes on may ask for priority {others.max_priority}."
        do = "Give a priority to the tenants that need it, by name; or let the proxy set steelyard-priority itself."
        yield ("tenants", "*", "max_priority"), what, do


def admin_no_tls(config: Config) -> Findings:
    """an admin API that other machines can reach, without TLS"""
    listen = config.admin.listen
    if listen and not listen_address(listen).is_loopback:
        what = f"Other machines can reach {listen}, and the tokens they show are not encrypted."
        yield ("admin", "listen"), what, "Listen on 127.0.0.1, and go there through ssh or what ends TLS."


def allows_all_replicas(config: Config) -> Findings:
    """replicas allowed at any address"""
    for place, text in enumerate(config.admin.allowed_replicas):
        if (found := parse_network(text)) is not None and found.prefixlen == 0:
            what = f"{text} is every address, so a client that may add replicas can have requests sent anywhere."
            yield ("admin", "allowed_replicas", place), what, "Name the networks of your own replicas only."


def timeout_order(config: Config) -> Findings:
    """a timeout longer than `timeouts.total`"""
    total, usual = config.timeouts.total, TimeoutsConfig()
    limits: list[tuple[Key, float]] = [
        (("timeouts", name), getattr(config.timeouts, name))
        for name in ("connect", "first_byte", "stream_idle")
        if getattr(config.timeouts, name) != getattr(usual, name)
    ]
    limits += [(("models", name, "timeout"), model.timeout or 0.0) for name, model in config.models.items()]
    for key, seconds in limits:
        if seconds > total:
            what = f"{format_seconds(seconds)} is never reached: timeouts.total ends it after {format_seconds(total)}."
            yield key, what, "Make it shorter, or timeouts.total longer."


def keep_alive_race(config: Config) -> Findings:
    """idle connections kept longer than most servers do"""
    idle = config.timeouts.replica_idle
    if idle >= SERVER_KEEP_ALIVE_SECONDS:
        what = f"Unused connections are kept for {format_seconds(idle)}, and common servers close theirs after 5 s."
        do = "Keep it under what the replicas have set, or requests meet connections that are being closed."
        yield ("timeouts", "replica_idle"), what, do


def unroutable_model(config: Config) -> Findings:
    """a model of `dialect: http` (or one like it) without `paths`, beside other models"""
    for name, model in config.models.items() if len(config.models) > 1 else ():
        if name != ANY_MODEL and is_plain_http(model) and not model.paths:
            what = "Its requests name no model, and beside other models only the header steelyard-model leads to it."
            yield ("models", name), what, f"Give it paths, for example [/{quote(name)}]."


def no_replay(config: Config) -> Findings:
    """no body is kept for retries"""
    if config.limits.replay_bytes == 0:
        what = "Without a kept body no POST can be tried again, nor its model or size be read from it."
        yield ("limits", "replay_bytes"), what, "Leave it at 8MiB, or make it as large as most of your requests."


def shared_device(config: Config) -> Findings:
    """several models on a device of unknown memory"""
    users: dict[str, dict[str, Key]] = defaultdict(dict)
    for name, model in config.models.items():
        for place, replica in enumerate(model.replicas):
            if replica.device:
                users[replica.device].setdefault(name, ("models", name, "replicas", place, "device"))
    for device, models in users.items():
        if len(models) > 1 and device not in config.devices:
            what = f"{', '.join(models)} share {device}, and nothing says how much memory it has."
            yield list(models.values())[-1], what, f"Add it under devices, for example {device}: {{memory: 80GiB}}."


def unused_device(config: Config) -> Findings:
    """a device without replicas"""
    models = config.models.values()
    used = {replica.device for model in models for replica in model.replicas}
    used |= {device for model in models if model.runtime is not None for device in model.runtime.devices}
    for name in config.devices:
        if name not in used:
            yield ("devices", name), f"No replica runs on {name}.", "Name it as device of a replica, or remove it."
