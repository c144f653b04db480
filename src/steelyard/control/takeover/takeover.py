"""One gateway after another at the same addresses: sockets, replicas and what is known of them pass to the successor,
and nothing is lost on the way. See docs/decisions/0026-hand-over.md."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from pathlib import Path
from typing import Any

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

SOCKET_DELIVERY_SECONDS = 1.0  # seconds for workers of a dead supervisor to bring their sockets
FIRST_PROBE_SECONDS = 3.0  # seconds for the first probes, while such workers go on
PREDECESSOR_GRACE_SECONDS = 5.0  # seconds for the workers before us, beyond the time for draining

log = logging.getLogger("steelyard.control")
HandOver = Callable[[], Coroutine[Any, Any, tuple[FleetState, list[socket.socket]]]]


class Takeover:
    """Those before us (a running gateway, or workers that a killed supervisor left), and the one after us."""

    def __init__(
        self,
        command: Sequence[str],
        sockets: Sequence[socket.socket],
        hand_out: HandOver,
        take_back: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`hand_out`: a successor wants our sockets; `take_back`: it did not start after all."""
        self.inherited = InheritedSockets(sockets)
        self.predecessor: Predecessor | None = None
        self.orphaned_addresses: dict[
            Address, set[int]
        ] = {}  # addresses where only workers without a supervisor listen
        self.superseded = asyncio.Event()  # a successor serves
        self._command = command
        self._hand_out, self._take_back = hand_out, take_back
        self._control: ControlSocket | None = None
        self._former: set[int] = set()  # workers of a supervisor before us that have not ended yet
        self._former_until = inf  # nobody has told them to end yet
        self._drain = 0.0

    @property
    def has_predecessor(self) -> bool:
        """Does somebody before us still serve?"""
        return self.predecessor is not None or bool(self.orphaned_addresses)

    # ------------------------------------------------------------------ before us

    async def find(self, config: Config, *, take_over: bool) -> FleetState | None:
        """Get the sockets that are open already. Returns what the predecessor knows, if there is one; TakeOverError: it
        gives nothing."""
        path = _control_path(config)
        if take_over and path is not None:
            self.predecessor = await Predecessor.find(path)
        if self.predecessor is not None:
            self.inherited.add(self.predecessor.sockets)
            return self.predecessor.state
        self.orphaned_addresses = find_orphaned_workers(config.listen_addresses, self._command)
        self._former = set().union(*self.orphaned_addresses.values())
        if self._former and path is not None:
            self._control = self._made_control(path)
            self._control.open()
            self.inherited.add(await self._control.collect_orphan_sockets(self._former, SOCKET_DELIVERY_SECONDS))
        return None

    def advertise(self, name: str) -> str:
        """Where those after us will find us, under this name."""
        self._control = self._control or self._made_control(control_socket_path(name))
        return str(self._control.path)

    async def wait_until_ready(self, fleet: Fleet) -> None:
        """Before our workers take connections from those that know already which replicas are ready."""
        if self.predecessor is not None:
            await wait_until_as_ready(fleet, self.predecessor.state)
        elif self.orphaned_addresses:
            await wait_until_probed(fleet, FIRST_PROBE_SECONDS)

    async def take_effect(self, drain: float) -> None:
        """Our workers serve: those before us may finish what they have."""
        assert self._control is not None
        self._drain = drain
        for name in self.inherited.close_unclaimed():
            log.warning("a socket at %s was handed down, and the configuration does not name it: it is closed", name)
        self._former_until = asyncio.get_running_loop().time() + drain + PREDECESSOR_GRACE_SECONDS
        terminate(self._former, told=self._control.drain_orphans())
        if self.predecessor is not None:
            await self.predecessor.start_drain()
        self._control.open()

    def poll(self) -> bool:
        """Has the last of those before us ended just now?"""
        if self.predecessor is not None and self.predecessor.exited.is_set():
            log.info("the gateway before this one (pid %d) has ended", self.predecessor.pid)
            self.predecessor = None
            return True
        if self._former:
            late = asyncio.get_running_loop().time() >= self._former_until
            self._former = set() if late else still_running(self._former, self._command)
            return not self._former
        return False

    @property
    def predecessor_gone(self) -> bool:
        """Is nothing left of those before us?"""
        self._former = still_running(self._former, self._command)
        return not self._former and (self.predecessor is None or self.predecessor.exited.is_set())

    def abort(self) -> None:
        """We do not start: those before us go on."""
        self.inherited.close_unclaimed()
        self.close()
        if self.predecessor is not None:
            self.predecessor.close()

    # ------------------------------------------------------------------ after us

    def close(self) -> None:
        """Nobody can take over any more."""
        if self._control is not None:
            self._control.close()

    def finish(self) -> None:
        """Nothing is left of us."""
        if self._control is not None:
            self._control.finish()

    def _made_control(self, path: Path) -> ControlSocket:
        return ControlSocket(path, asked=self._hand_out, failed=self._take_back, relieved=self._relieved)

    def _relieved(self, pid: int) -> float:
        notify(f"MAINPID={pid}")
        self.superseded.set()
        return self._drain


def _control_path(config: Config) -> Path | None:
    """None: the kernel chooses the port, and nobody can know the name yet."""
    first = config.listen_addresses[0]
    if not config.name and not first.path and not first.port:
        return None
    return control_socket_path(config.name or str(first))
