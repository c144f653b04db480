"""What starts the replicas of a model: one struct a kind, beside its runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from ...documents import Key, Problem, Seconds
from .base import Natural, Section, described
from .kinds import ConfigKind

if TYPE_CHECKING:
    from .root import ModelConfig

RUNTIMES: dict[str, str] = {"process": "steelyard.runtimes.process.config:ProcessRuntimeConfig"}


class RuntimeConfig(ConfigKind):
    """`runtime` of a model, of whatever kind."""

    __slots__ = ()

    noun = "runtime"
    base_name = "steelyard.config.RuntimeSection"
    kinds = RUNTIMES
    default_kind = "process"
    # Changing these does not touch replicas that run.
    live_fields = frozenset(
        {"devices", "replicas", "start_timeout", "drain_timeout", "stop_timeout", "expose_log_tail"}
    )
    devices: tuple[str, ...]
    replicas: int
    start_timeout: Seconds
    drain_timeout: Seconds | None
    stop_timeout: Seconds
    expose_log_tail: bool

    def problems(self, key: Key, model: ModelConfig) -> Iterator[Problem]:
        """What types cannot express. `key`: its place in the configuration."""
        yield from ()

    @classmethod
    def has_replicas(cls, gateway_name: str, predecessor_pid: int = 0) -> bool:
        """Whether an earlier supervisor of this name left replicas, or the living one with that pid hands
        some over. Then a kind of the table is opened although no model uses it. Called in a thread."""
        return False

    @classmethod
    def open(cls, gateway_name: str) -> Any:
        """Make the `steelyard.runtimes.Runtime` for all models of this kind, inside a running loop. It labels what it
        starts with `gateway_name`, so that `list` finds it after a restart. Import here what only it needs."""
        raise NotImplementedError


class RuntimeSection(Section, RuntimeConfig, frozen=True, omit_defaults=False, kw_only=True):
    """The keys that every kind of runtime has. Your own kind derives from it."""

    __renamed__: ClassVar[dict[str, str]] = {"drain": "drain_timeout", "show_last_words": "expose_log_tail"}

    kind: Annotated[str, described("`process`: on this machine; or `package.module:Class`, your own")] = ""
    devices: Annotated[tuple[str, ...], described("names of `devices`: a replica runs where most is free")] = ()
    replicas: Annotated[Natural, described("how many, without `autoscale`")] = 1
    start_timeout: Annotated[Seconds, described("longest start until it counts as failed")] = Seconds(600)
    drain_timeout: Annotated[
        Seconds | None, described("longest drain before a stop; unset: as long as requests may take")
    ] = None
    stop_timeout: Annotated[Seconds, described("from SIGTERM to SIGKILL")] = Seconds(10)
    expose_log_tail: Annotated[bool, described("shows waiting clients the last output of a failed start")] = False
