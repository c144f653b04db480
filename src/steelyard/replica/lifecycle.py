"""What runs beside the app from its first event to its last: leases, signals, the drain."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .http.asgi import Scope
from .http.model_endpoints import MODELS_PATH
from .options import ANY_MODEL
from .registration.gateway_client import GatewayClient
from .registration.own_address import address_from_request, replica_name
from .registration.registrar import Announcement, Registration
from .signals import DrainSignals

if TYPE_CHECKING:
    from .agent import ReplicaAgent

READY_PATH = "/steelyard/ready"
POLL_INTERVAL_SECONDS = 0.02
LEAVE_TIMEOUT_SECONDS = 2.0  # to give up the leases, at an end without a drain
log = logging.getLogger("steelyard.replica")


def process_start_time() -> float:
    """Seconds since 1970; where the kernel does not tell, about now."""
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat") as file:
            boot = next(float(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return time.time()
    return round(boot + ticks / os.sysconf("SC_CLK_TCK"), 2)


class DrainProgress(NamedTuple):
    began: float
    grace: float  # seconds after which it ends, whatever still runs
    quiet: float  # seconds in which nothing came or ended
    settle: float  # seconds for gateways that only probe

    def is_over(self, now: float, present: int, last: float, withdrawn: bool) -> bool:
        """`present`: requests here; `last`: when one came or ended; `withdrawn`: gateways send no more."""
        if now - self.began >= self.grace:
            return True
        if present or now - max(self.began, last) < self.quiet:
            return False
        return withdrawn or now - self.began >= self.settle


class AgentLifecycle:
    """One process, one instance: by another one, a gateway knows that the replica restarted."""

    def __init__(self, agent: ReplicaAgent) -> None:
        self.process = os.getpid()
        self.instance = secrets.token_hex(8)
        self.started = process_start_time()
        self._agent = agent
        self._parent = agent.parent if agent.parent is not None and agent.parent.process != self.process else None
        self._url = agent.options.url
        self._drain: DrainProgress | None = None
        self._signals = DrainSignals(lambda: self.drain("the process was asked to end"))
        self._gateways = agent.options.gateways
        self._registrations: list[Registration] = []

    def begin(self) -> None:
        self._signals.install()
        if self._parent is not None and not self._parent.register_child():
            log.warning("several processes serve this app: only the first is registered, and counts are its own")
            self._gateways, self._parent = (), None
        if self._gateways and not self._url:
            log.warning("no url and no STEELYARD_URL: this replica registers after its first request")
        for model in (self._agent.options.model, *self._agent.models):
            self.register(model)

    def register(self, model: str) -> None:
        if model == ANY_MODEL:
            return
        for address in self._gateways:
            gateway = GatewayClient(address, self._agent.options.token)
            registration = Registration(gateway, self._agent.options.lease, partial(self._announcement, model))
            self._registrations.append(registration)
            registration.start()

    def learn_address(self, scope: Scope) -> None:
        """From a request, if it is not configured."""
        if not self._url:
            self._url = address_from_request(scope, self._agent.options.gateways)

    def _announcement(self, model: str) -> Announcement | None:
        from urllib.parse import quote

        options = self._agent.options
        if not self._url:
            return None
        about: dict[str, Any] = {
            "url": self._url,
            "seconds": options.lease,
            "instance": self.instance,
            "weight": options.weight,
            "zone": options.zone,
            "device": options.device,
            "ready": READY_PATH if model not in self._agent.models else f"{MODELS_PATH}/{quote(model)}/ready",
        }
        return Announcement(model, options.id or replica_name(self._url), self.instance, about)

    # ------------------------------------------------------------------ the end

    def drain(self, reason: str) -> bool:
        """Until nothing runs (True), or the grace is over."""
        agent, turns = self._agent, self._agent.limiter
        agent.readiness.drain(reason)
        self._give_up_leases()
        options = agent.options
        if self._drain is None:
            limits = options.drain_timeout, options.drain_idle, options.deregistration_delay
            self._drain = DrainProgress(time.monotonic(), *limits)
            # A warning: without a logging setup, nothing below is seen.
            log.warning("draining: %s; %d requests in flight; a second signal stops at once", reason, turns.present)
        while not self._drain.is_over(time.monotonic(), turns.present, turns.last_activity, self._withdrawn):
            time.sleep(POLL_INTERVAL_SECONDS)
        if (left := turns.present) > 0:
            log.warning("%d requests still in flight after the drain timeout of %g s", left, options.drain_timeout)
        if self._parent is not None:
            self._parent.report_drained()
        return left == 0

    async def leave(self) -> None:
        """The server ends by itself, after any drain."""
        self._agent.readiness.drain("the server ends")
        self._give_up_leases()
        end = time.monotonic() + LEAVE_TIMEOUT_SECONDS
        while time.monotonic() < end and not all(registration.over for registration in self._registrations):
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        self._signals.restore()

    def _give_up_leases(self) -> None:
        for registration in self._registrations:
            registration.leave()

    @property
    def _withdrawn(self) -> bool:
        return bool(self._registrations) and all(registration.withdrawn for registration in self._registrations)
