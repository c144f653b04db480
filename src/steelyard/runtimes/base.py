"""The interface of a runtime, be it this machine or a thousand."""

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
    model: str
    id: str  # unique among the model's replicas
    settings: Any  # the struct of the runtime's kind: a `steelyard.config.RuntimeSection`
    device: str = ""  # name under `devices`; empty: none
    gpu: str = ""  # number or UUID of the device's GPU, where it has one
    number: int = 0  # small, and of no other replica of the model; `process` only records it


class Instance(NamedTuple):
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
    """`reason` is stable: command_not_found, permission_denied, working_directory_missing, port_in_use, no_free_port,
    failed."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(what)
        self.reason = reason


class Runtime(Protocol):
    """Needs a running loop. Replicas run on when the supervisor is killed; `list` of the next returns them."""

    async def start(self, spec: ReplicaSpec) -> Instance:
        """Returns before it is ready. ReplicaStartError: it was not started; nothing is left of it."""

    async def stop(self, model: str, id: str, *, timeout: float) -> None:
        """Asks it to end, kills it after `timeout` seconds, returns when it is gone. May be called twice at once."""

    async def list(self, predecessor_pid: int = 0) -> tuple[Instance, ...]:
        """All that run under this gateway's name, also of an earlier supervisor: one that ended, or the one with pid
        `predecessor_pid`, which lives and hands over."""

    def watch(self, callback: Callable[[Instance], None]) -> None:
        """Calls `callback` for each that changes: its URL becomes known, or it ended."""

    def log_tail(self, model: str, id: str, lines: int = 20) -> tuple[str, ...]:
        """The end of its log, for some time also after it ended."""

    def release(self) -> None:
        """Another supervisor of this gateway's name may take over, until `list` is called again."""

    async def close(self) -> None:
        """Replicas run on. Starts and stops after that raise MisuseError."""
