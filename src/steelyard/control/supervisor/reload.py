"""What the supervisor asks of a configuration."""

from __future__ import annotations

import msgspec

from ...config import Config


def split_reloadable(wanted: Config, now: Config) -> tuple[Config, str]:
    """What can be put in force while running, and the keys that need a restart."""
    held_back = []
    if wanted.listen_addresses != now.listen_addresses:
        held_back.append("listen")
        wanted = msgspec.structs.replace(wanted, listen=now.listen)
    if wanted.name != now.name:  # what runs was started under the name it had
        held_back.append("name")
        wanted = msgspec.structs.replace(wanted, name=now.name)
    if (wanted.tls is None) != (now.tls is None):
        held_back.append("tls (to turn it on or off)")
        wanted = msgspec.structs.replace(wanted, tls=now.tls)
    if wanted.admin.listen != now.admin.listen:
        held_back.append("admin.listen")
        wanted = msgspec.structs.replace(wanted, admin=msgspec.structs.replace(wanted.admin, listen=now.admin.listen))
    if wanted.history != now.history:
        held_back.append("history")
        wanted = msgspec.structs.replace(wanted, history=now.history)
    return wanted, ", ".join(held_back)


def certificate_files(config: Config) -> list[str]:
    """The files it names that are read once: who changes them wants them read again."""
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
