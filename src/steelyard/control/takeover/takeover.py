"""One gateway replaces another at the same addresses without losing a request. See docs/decisions/0026-hand-over.md."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ...addresses import Address
from ...config import Config
from ...link.handover import FleetState
from ..fleet.fleet import Fleet
from ..listeners.inherited import InheritedSockets
from ..systemd import notify
from .control_socket import ControlSocket, control_socket_path
from .fleet_snapshot import wait_until_as_ready, wait_until_probed
from .orphaned_workers import find_orphaned_workers, still_running, terminate
from .predecessor import Predecessor

if TYPE_CHECKING:
    from ..supervisor.supervisor import Supervisor

SOCKET_DELIVERY_SECONDS = 1.0  # for orphaned workers to bring their sockets
FIRST_PROBE_SECONDS = 3.0  # for the first probes, while orphaned workers serve
PREDECESSOR_GRACE_SECONDS = 5.0  # for earlier workers, beyond the drain timeout

log = logging.getLogger("steelyard.control")


class Takeover:
    """The predecessor (a running gateway, or workers that a killed supervisor left), and the successor."""

    def __init__(self, supervisor: Supervisor, sockets: Sequence[socket.socket]) -> None:
        self.supervisor = supervisor
        self.inherited = InheritedSockets(sockets)
        self.predecessor: Predecessor | None = None
        self.orphaned_addresses: dict[Address, set[int]] = {}  # where only orphaned workers listen
        self.superseded = asyncio.Event()  # a successor serves
        self._control: ControlSocket | None = None
        self._former: set[int] = set()  # orphaned workers that still run
        self._former_until = inf  # it was not asked to end yet
        self._drain = 0.0

    @property
    def has_predecessor(self) -> bool:
        return self.predecessor is not None or bool(self.orphaned_addresses)

    # ------------------------------------------------------------------ before us

    async def find(self, config: Config, *, take_over: bool) -> FleetState | None:
        """Takes the sockets that are open already. Returns the predecessor's state, if there is one. Raises
        TakeOverError if it refuses."""
        path = _control_path(config)
        if take_over and path is not None:
            self.predecessor = await Predecessor.find(path)
        if self.predecessor is not None:
            self.inherited.add(self.predecessor.sockets)
            return self.predecessor.state
        self.orphaned_addresses = find_orphaned_workers(config.listen_addresses, self.supervisor.command)
        self._former = set().union(*self.orphaned_addresses.values())
        if self._former and path is not None:
            self._control = ControlSocket(path, self)
            self._control.open()
            self.inherited.add(await self._control.collect_orphan_sockets(self._former, SOCKET_DELIVERY_SECONDS))
        return None

    def advertise(self, name: str) -> str:
        """Where a successor of this name finds us."""
        self._control = self._control or ControlSocket(control_socket_path(name), self)
        return str(self._control.path)

    async def wait_until_ready(self, fleet: Fleet) -> None:
        """Our workers must not take connections before they know which replicas are ready."""
        if self.predecessor is not None:
            await wait_until_as_ready(fleet, self.predecessor.state)
        elif self.orphaned_addresses:
            await wait_until_probed(fleet, FIRST_PROBE_SECONDS)

    async def take_effect(self, drain: float) -> None:
        """Our workers serve: earlier ones drain."""
        assert self._control is not None
        self._drain = drain
        for name in self.inherited.close_unclaimed():
            log.warning("closing the inherited socket at %s: the configuration does not name it", name)
        self._former_until = asyncio.get_running_loop().time() + drain + PREDECESSOR_GRACE_SECONDS
        terminate(self._former, notified=self._control.drain_orphans())
        if self.predecessor is not None:
            await self.predecessor.start_drain()
        self._control.open()

    def poll(self) -> bool:
        """Whether the last of the earlier workers has just ended."""
        if self.predecessor is not None and self.predecessor.exited.is_set():
            log.info("the previous gateway (pid %d) has ended", self.predecessor.pid)
            self.predecessor = None
            return True
        if self._former:
            late = asyncio.get_running_loop().time() >= self._former_until
            self._former = set() if late else still_running(self._former, self.supervisor.command)
            return not self._former
        return False

    @property
    def predecessor_gone(self) -> bool:
        self._former = still_running(self._former, self.supervisor.command)
        return not self._former and (self.predecessor is None or self.predecessor.exited.is_set())

    def abort(self) -> None:
        """We do not start: the predecessor goes on."""
        self.inherited.close_unclaimed()
        self.close()
        if self.predecessor is not None:
            self.predecessor.close()

    # ------------------------------------------------------------------ after us

    def close(self) -> None:
        """Accepts no successor any more."""
        if self._control is not None:
            self._control.close()

    def finish(self) -> None:
        """Nothing is left of us."""
        if self._control is not None:
            self._control.finish()

    def succeeded_by(self, pid: int) -> float:
        """Returns how many seconds our workers have to drain."""
        notify(f"MAINPID={pid}")
        self.superseded.set()
        return self._drain


def _control_path(config: Config) -> Path | None:
    """None: the kernel chooses the port, so the name is not known yet."""
    first = config.listen_addresses[0]
    if not config.name and not first.path and not first.port:
        return None
    return control_socket_path(config.name or str(first))
