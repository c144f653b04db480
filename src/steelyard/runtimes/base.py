"""What starts replicas. A runtime may be this machine or a thousand: nothing here assumes one."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from ..core.errors import SteelyardError


class InstancePhase(Enum):
    STARTING = "starting"  # ordered, perhaps not placed yet: its url may be unknown
    RUNNING = "running"  # its process runs; whether it is *ready* is for probes to see
    ENDED = "ended"


class ReplicaSpec(NamedTuple):
    """A replica that should be."""

    model: str
    id: str  # unique among the model's replicas
    settings: Any  # the struct of the runtime's kind: a `steelyard.config.RuntimeSection`
    device: str = ""  # name under `devices`; empty: none
    gpu: str = ""  # number or UUID of the device's GPU, where it has one
    number: int = 0  # a small number that no other replica of the model has now; `process` only records it


class Instance(NamedTuple):
    """A replica as its runtime sees it."""

    model: str
    id: str
    url: str  # empty: not known yet
    device: str
    fingerprint: str  # `settings.fingerprint()` of the settings it was started with
    phase: InstancePhase
    age: float  # seconds since it was started
    exit_reason: str = ""  # how it ended, in words: `exit code 1`, `signal SIGKILL`
    location: str = ""  # for people: `pid 4711`, a pod's name
    log_path: str = ""  # where its log is, for people


class ReplicaStartError(SteelyardError):
    """It was not started. `reason` is stable: no_such_command, not_allowed, port_taken, no_port, no_folder, failed."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason


class Runtime(Protocol):
    """To be made and used inside a running loop. What it started goes on when the supervisor is killed, and `list`
    of the next one tells of it."""

    async def start(self, order: ReplicaSpec) -> Instance:
        """Returns when it was ordered, not when it is ready. ReplicaStartError: it was not; nothing is left of it."""

    async def stop(self, model: str, id: str, *, patience: float) -> None:
        """Asks it to end, after `patience` seconds makes it. Returns when it is gone; of one that is gone already, at
        once. May be called twice at the same time."""

    async def list(self, heir_of: int = 0) -> tuple[Instance, ...]:
        """All that run and were started under this gateway's name, also by an earlier supervisor: one that ended, or
        the one with pid `heir_of`, which lives and hands over."""

    def watch(self, told: Callable[[Instance], None]) -> None:
        """From now on `told` hears of each that changes: whose url becomes known, that ended, whoever ended it."""

    def log_tail(self, model: str, id: str, lines: int = 20) -> tuple[str, ...]:
        """The end of its log, also of one that ended (for some time)."""

    def release(self) -> None:
        """Another supervisor of this gateway's name may take over what runs, until `list` is called again."""

    async def close(self) -> None:
        """Watches no more. What runs goes on. Nothing can be started or stopped after that: MisuseError."""
