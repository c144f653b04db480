"""Every replica of a pool is restarted under load: no request fails, and none reaches a replica that is loading.

MLServer and LitServe are restarted at the same time, each the replicas of a model of its own, to save time.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.admin import AdminClient, admin_config
from tests.harness.serving import Serving, config
from tests.harness.waiting import wait_until

from . import rolling
from .rolling import Load, Restarted, check, fronted, running, wait_ready

pytestmark = pytest.mark.xdist_group("real")

HOW_LONG = [pytest.param(1.0, 2, id="1 s, two"), pytest.param(5.0, 3, id="5 s, three", marks=pytest.mark.slow)]


class Fleets:
    """A model of MLServers and one of LitServes, with a gateway in front and clients that never stop asking."""

    def __init__(self, folder: Path, seconds: float, count: int, **options: Any) -> None:
        self.servers = {
            kind: [rolling.KINDS[kind].make(f"{kind}-{number}", folder, seconds) for number in range(count)]
            for kind in rolling.KINDS
        }
        self._options = options
        self._stack = ExitStack()

    def __enter__(self) -> AdminClient:
        with ExitStack() as stack:
            stack.enter_context(running([server for servers in self.servers.values() for server in servers]))
            gateway, admin = stack.enter_context(fronted(self.servers, **self._options))
            for kind, servers in self.servers.items():
                wait_ready(admin, kind, *servers)
            self.loads = {kind: stack.enter_context(Load(gateway, rolling.KINDS[kind].ask)) for kind in self.servers}
            self._stack = stack.pop_all()
        return admin

    def __exit__(self, *exc_info: Any) -> None:
        self._stack.__exit__(*exc_info)

    def in_turn(self) -> list[dict[str, Restarted]]:
        """One of each kind at a time."""
        return [dict(zip(self.servers, some, strict=True)) for some in zip(*self.servers.values(), strict=True)]

    def wait_served(self, some: dict[str, Restarted]) -> None:
        for kind, server in some.items():
            server.wait_loaded(rolling.KINDS[kind].processes)
            server.wait_asked()

    def check(self, attempts: int = 1) -> None:
        for kind, load in self.loads.items():
            check(load, self.servers[kind], processes=rolling.KINDS[kind].processes, attempts=attempts)


@pytest.mark.parametrize(("seconds", "count"), HOW_LONG)
def test_real_servers_with_a_drain(tmp_path: Path, seconds: float, count: int) -> None:
    """Undrained before it has even begun to load: when it is ready is for the gateway to find out."""
    fleets = Fleets(tmp_path, seconds, count, idempotent=False)
    with fleets as admin:
        for some in fleets.in_turn():
            for kind, server in some.items():
                server.wait_asked()
                admin.drain(server.name, kind)
                wait_until(lambda at=(server.name, kind): admin.replica(*at).in_flight == 0, "its requests do not end")
                server.stop()
                server.start()
                admin.undrain(server.name, kind)
            fleets.wait_served(some)
        fleets.check()


@pytest.mark.slow
def test_real_servers_without_a_drain(tmp_path: Path) -> None:
    """Just SIGTERM. LitServe ends at once and what runs there with it, so only what may be retried comes to no harm."""
    fleets = Fleets(tmp_path, 5.0, 3, idempotent=True)
    with fleets:
        for some in fleets.in_turn():
            for server in some.values():
                server.wait_asked()
                server.stop()
                server.start()
            fleets.wait_served(some)
        fleets.check(attempts=3)


@pytest.mark.parametrize(("seconds", "count"), HOW_LONG)
def test_the_demo_replica(tmp_path: Path, seconds: float, count: int) -> None:
    """It registers itself and leaves by itself: SIGTERM and a new start are all there is to do."""
    settings = config({"demo": rolling.PROBED | {"paths": ["/work"]}}, workers=2, admin=admin_config())
    with Serving(settings) as gateway, AdminClient(settings, "demo") as admin:
        admin.wait_up()
        servers = [rolling.demo(f"demo-{number}", tmp_path, seconds, admin.url) for number in range(count)]
        with running(servers):
            wait_ready(admin, "demo", *servers)
            with Load(gateway, rolling.work) as load:
                for server in servers:
                    server.wait_asked()
                    server.stop()
                    server.start()
                    server.wait_loaded()
                    server.wait_asked()
                check(load, servers)
