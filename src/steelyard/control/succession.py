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

from ..addresses import Address
from ..config import Config
from ..link.handover import FleetState
from .control_socket import ControlSocket, control_path
from .fleet import Fleet
from .fleet_state import as_ready_as, looked_at
from .inherited import Inherited
from .notify import notify
from .orphans import at_work, orphans, send_home
from .predecessor import Predecessor

DELIVERY = 1.0  # seconds for workers of a dead supervisor to bring their sockets
FIRST_LOOK = 3.0  # seconds for the first probes, while such workers go on
FAREWELL = 5.0  # seconds for the workers before us, beyond the time for draining

log = logging.getLogger("steelyard.control")
HandOut = Callable[[], Coroutine[Any, Any, tuple[FleetState, list[socket.socket]]]]


class Succession:
    """Those before us (a running gateway, or workers that a killed supervisor left), and the one after us."""

    def __init__(
        self,
        command: Sequence[str],
        sockets: Sequence[socket.socket],
        hand_out: HandOut,
        take_back: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`hand_out`: a successor wants our sockets; `take_back`: it did not start after all."""
        self.inherited = Inherited(sockets)
        self.predecessor: Predecessor | None = None
        self.orphaned: dict[Address, set[int]] = {}  # addresses where only workers without a supervisor listen
        self.relieved = asyncio.Event()  # a successor serves
        self._command = command
        self._hand_out, self._take_back = hand_out, take_back
        self._control: ControlSocket | None = None
        self._former: set[int] = set()  # workers of a supervisor before us that have not ended yet
        self._former_until = inf  # nobody has told them to end yet
        self._drain = 0.0

    @property
    def has_predecessor(self) -> bool:
        """Does somebody before us still serve?"""
        return self.predecessor is not None or bool(self.orphaned)

    # ------------------------------------------------------------------ before us

    async def find(self, config: Config, *, take_over: bool) -> FleetState | None:
        """Get the sockets that are open already. Returns what the predecessor knows, if there is one; TakeOverError: it
        gives nothing."""
        path = _path(config)
        if take_over and path is not None:
            self.predecessor = await Predecessor.find(path)
        if self.predecessor is not None:
            self.inherited.add(self.predecessor.sockets)
            return self.predecessor.state
        self.orphaned = orphans(config.addresses, self._command)
        self._former = set().union(*self.orphaned.values())
        if self._former and path is not None:
            self._control = self._made_control(path)
            self._control.open()
            self.inherited.add(await self._control.gather(self._former, DELIVERY))
        return None

    def named(self, name: str) -> str:
        """Where those after us will find us, under this name."""
        self._control = self._control or self._made_control(control_path(name))
        return str(self._control.path)

    async def see(self, fleet: Fleet) -> None:
        """Before our workers take connections from those that know already which replicas are ready."""
        if self.predecessor is not None:
            await as_ready_as(fleet, self.predecessor.state)
        elif self.orphaned:
            await looked_at(fleet, FIRST_LOOK)

    async def relieve(self, drain: float) -> None:
        """Our workers serve: those before us may finish what they have."""
        assert self._control is not None
        self._drain = drain
        for name in self.inherited.close():
            log.warning("a socket at %s was handed down, and the configuration does not name it: it is closed", name)
        self._former_until = asyncio.get_running_loop().time() + drain + FAREWELL
        send_home(self._former, told=self._control.relieve_orphans())
        if self.predecessor is not None:
            await self.predecessor.relieve()
        self._control.open()

    def look(self) -> bool:
        """Has the last of those before us ended just now?"""
        if self.predecessor is not None and self.predecessor.gone.is_set():
            log.info("the gateway before this one (pid %d) has ended", self.predecessor.pid)
            self.predecessor = None
            return True
        if self._former:
            late = asyncio.get_running_loop().time() >= self._former_until
            self._former = set() if late else at_work(self._former, self._command)
            return not self._former
        return False

    @property
    def over(self) -> bool:
        """Is nothing left of those before us?"""
        self._former = at_work(self._former, self._command)
        return not self._former and (self.predecessor is None or self.predecessor.gone.is_set())

    def give_up(self) -> None:
        """We do not start: those before us go on."""
        self.inherited.close()
        self.close()
        if self.predecessor is not None:
            self.predecessor.close()

    # ------------------------------------------------------------------ after us

    def close(self) -> None:
        """Nobody can take over any more."""
        if self._control is not None:
            self._control.close()

    def end(self) -> None:
        """Nothing is left of us."""
        if self._control is not None:
            self._control.end()

    def _made_control(self, path: Path) -> ControlSocket:
        return ControlSocket(path, asked=self._hand_out, failed=self._take_back, relieved=self._relieved)

    def _relieved(self, pid: int) -> float:
        notify(f"MAINPID={pid}")
        self.relieved.set()
        return self._drain


def _path(config: Config) -> Path | None:
    """None: the kernel chooses the port, and nobody can know the name yet."""
    first = config.addresses[0]
    if not config.name and not first.path and not first.port:
        return None
    return control_path(config.name or str(first))
