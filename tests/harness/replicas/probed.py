"""Stub replicas that say themselves whether they are ready, and a gateway that asks them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..admin import PROBED, AdminClient, admin_config
from ..serving import Serving, config, model
from . import scripts
from .stub import Event, Script, StubReplica

HEALTH = "/health"
READY = scripts.plain("ready")
LOADING = scripts.plain("loading", 503)
PACED = scripts.slow(0.01)  # clients that ask without a pause leave the machine something for the rest


class ProbedReplica(StubReplica):
    """Requests with an id are clients'; those without are Steelyard's own."""

    def __init__(
        self, name: str = "stub", *, ready: bool = True, paths: dict[str, Script] | None = None, **options: Any
    ):
        paths = {HEALTH: READY if ready else LOADING, **(paths or {})}
        super().__init__(name, paths=paths, **{"script": PACED, **options})

    def on_path(self, path: str, script: Script) -> None:
        """From now on, and after a restart too."""
        self.options["paths"][path] = script
        self._command("path", path, script)

    def ready(self) -> None:
        self.on_path(HEALTH, READY)

    def loading(self) -> None:
        self.on_path(HEALTH, LOADING)

    def restart(self, *, ready: bool = False) -> None:
        """After it was killed: a new process on the same port."""
        self.options["paths"][HEALTH] = READY if ready else LOADING
        self.start()

    def real(self, since: int = 0) -> list[Event]:
        """The requests of clients that reached it."""
        return [event for event in self.of("request", since) if event["id"]]

    def probes(self, since: int = 0) -> list[Event]:
        return [event for event in self.of("request", since) if event["target"] == HEALTH]

    @property
    def mark(self) -> int:
        """Where its events are now, for `since`."""
        return len(self.events)

    def wait_real(self, count: int = 1, since: int = 0) -> Event:
        self.wait_for(lambda: len(self.real(since)) >= count, f"{count} requests of clients")
        return self.real(since)[count - 1]

    def untouched(self, since: int = 0) -> None:
        """No request of a client has reached it."""
        self.sync()
        assert self.real(since) == []


class Watched(NamedTuple):
    """A gateway that probes, and its admin API."""

    gateway: Serving
    admin: AdminClient


@contextmanager
def watched(
    *stubs: StubReplica,
    health: dict[str, Any] | None = None,
    workers: int = 1,
    admin: dict[str, Any] | None = None,
    models: dict[str, dict[str, Any]] | None = None,
    **rest: Any,
) -> Iterator[Watched]:
    """One model of these replicas, with `rest` as its options, or `models`; probed as PROBED and `health` say."""
    models = models or {"*": model(*stubs, **rest)}
    probed = {"health": PROBED | (health or {}), "slow_start": "500ms", "policy": "least_connections"}
    settings = config(
        {name: probed | options for name, options in models.items()},
        workers=workers,
        admin=admin_config(**(admin or {})),
    )
    with Serving(settings) as gateway, AdminClient(settings, next(iter(models))) as client:
        client.wait_up()
        yield Watched(gateway, client)
