"""Keeps this replica registered with one gateway until it leaves."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from .gateway_client import GatewayClient, GatewayUnreachableError
from .renewal import Renewal, RenewalStep

ADDRESS_POLL_SECONDS = 0.2
RETRYABLE_STATUSES = (408, 429)
WITHDRAW_TIMEOUT_SECONDS = 5.0
log = logging.getLogger("steelyard.replica")


class Announcement(NamedTuple):
    model: str
    replica: str
    instance: str
    body: dict[str, Any]


class Registration:
    """A thread of its own: one gateway may be slow."""

    def __init__(self, gateway: GatewayClient, seconds: float, announcement: Callable[[], Announcement | None]) -> None:
        self.withdrawn = False  # the gateway said so
        self._gateway = gateway
        self._announcement = announcement
        self._renewal = Renewal(gateway.address, seconds, Random())
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steelyard-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Gives up the lease; `over`: done, or failed for good."""
        self._leaving.set()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        announced: Announcement | None = None
        while not self._leaving.is_set():
            now = self._announcement()
            if now is None:
                self._leaving.wait(ADDRESS_POLL_SECONDS)
                continue
            announced = now
            self._leaving.wait(self._announce(now))
        if announced is not None:
            self._withdraw(announced)

    def _announce(self, what: Announcement) -> float:
        try:
            reply = self._gateway.announce(what.model, what.replica, what.body)
        except GatewayUnreachableError as problem:
            return _log_step(self._renewal.unreachable(str(problem)))
        if reply.ok:
            return _log_step(self._renewal.granted(reply.lease_seconds))
        return _log_step(self._renewal.refused(reply.status, reply.error_message))

    def _withdraw(self, what: Announcement) -> None:
        end = time.monotonic() + WITHDRAW_TIMEOUT_SECONDS
        wait = 0.1
        while not self._gave_up(what) and time.monotonic() + wait < end:
            time.sleep(wait)
            wait = min(1.0, wait * 2)

    def _gave_up(self, what: Announcement) -> bool:
        """True: it is done, or never will be."""
        try:
            reply = self._gateway.withdraw(what.model, what.replica, what.instance)
        except GatewayUnreachableError as problem:
            if not self._renewal.held:
                return True  # it never knew us
            log.info("could not deregister from gateway %s: %s", self._gateway.address, problem)
            return False
        self.withdrawn = reply.ok or reply.status == 404
        return self.withdrawn or (400 <= reply.status < 500 and reply.status not in RETRYABLE_STATUSES)


def _log_step(then: RenewalStep) -> float:
    if then.message:
        log.log(logging.INFO if then.succeeded else logging.WARNING, "%s", then.message)
    return then.wait
