"""Which parts of a configuration a reload applies, and which files it watches."""

from __future__ import annotations

from typing import Any

import msgspec

from ...config import Config


def split_reloadable(wanted: Config, now: Config) -> tuple[Config, str]:
    """What applies while running, and the keys that need a restart."""
    admin = msgspec.structs.replace(wanted.admin, listen=now.admin.listen)
    checks: tuple[tuple[str, bool, dict[str, Any]], ...] = (
        ("listen", wanted.listen_addresses != now.listen_addresses, {"listen": now.listen}),
        ("name", wanted.name != now.name, {"name": now.name}),  # replicas were started under the old one
        ("tls (to turn it on or off)", (wanted.tls is None) != (now.tls is None), {"tls": now.tls}),
        ("admin.listen", wanted.admin.listen != now.admin.listen, {"admin": admin}),
        ("history", wanted.history != now.history, {"history": now.history}),
    )
    held_back = {key: kept for key, changed, kept in checks if changed}
    for kept in held_back.values():
        wanted = msgspec.structs.replace(wanted, **kept)
    return wanted, ", ".join(held_back)


def certificate_files(config: Config) -> list[str]:
    """A change of these files is a reload."""
    found = [config.tls.certificate, config.tls.key, config.tls.client_ca] if config.tls else []
    for model in config.models.values():
        found += [model.tls.ca, model.tls.certificate, model.tls.key]
    return [path for path in dict.fromkeys(found) if path]


def summary(config: Config) -> str:
    """`2 models, 5 replicas, 1 worker`"""
    counts = {
        "model": len(config.models),
        "replica": sum(len(model.replicas) for model in config.models.values()),
        "worker": config.workers,
    }
    return ", ".join(f"{count} {thing}{'' if count == 1 else 's'}" for thing, count in counts.items())
