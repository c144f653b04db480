"""Which models are on servers that run other models too."""

from __future__ import annotations

from collections.abc import Iterable

from ...addresses import Address, unmapped_host

ServerKey = tuple[str, int]


def server_key(address: Address) -> ServerKey:
    """The same for two spellings of one server; names are not looked up."""
    if address.path:
        return address.path, 0
    host = "localhost" if address.is_loopback else unmapped_host(address.host).lower().removesuffix(".")
    return host, address.port


class SharedServers:
    def __init__(self) -> None:
        self._replicas: dict[ServerKey, dict[str, int]] = {}  # how many of each model

    def add(self, address: Address, model: str) -> None:
        models = self._replicas.setdefault(server_key(address), {})
        models[model] = models.get(model, 0) + 1

    def remove(self, address: Address, model: str) -> None:
        models = self._replicas[server_key(address)]
        models[model] -= 1
        if not models[model]:
            del models[model]
            if not models:
                del self._replicas[server_key(address)]

    def beside(self, wanted: Iterable[str]) -> frozenset[str]:
        """These models, and those on the same servers."""
        chosen = frozenset(wanted)
        return chosen.union(*(models for models in self._replicas.values() if not chosen.isdisjoint(models)))

    @property
    def sharing(self) -> frozenset[str]:
        return frozenset(model for models in self._replicas.values() if len(models) > 1 for model in models)
