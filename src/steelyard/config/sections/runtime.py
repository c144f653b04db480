"""What starts the replicas of a model. One struct a kind, beside the runtime that it configures."""

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
    # How many there should be, how long to wait for them and which devices they may use does not touch those that run.
    live_fields = frozenset(
        {"devices", "replicas", "start_timeout", "drain_timeout", "stop_timeout", "expose_log_tail"}
    )

    @property
    def devices(self) -> tuple[str, ...]:
        raise NotImplementedError

    @property
    def replicas(self) -> int:
        raise NotImplementedError

    @property
    def start_timeout(self) -> Seconds:
        raise NotImplementedError

    @property
    def drain_timeout(self) -> Seconds | None:
        raise NotImplementedError

    @property
    def stop_timeout(self) -> Seconds:
        raise NotImplementedError

    @property
    def expose_log_tail(self) -> bool:
        raise NotImplementedError

    def problems(self, key: Key, model: ModelConfig) -> Iterator[Problem]:
        """What the types cannot tell. `key`: where it stands in the configuration."""
        yield from ()

    @classmethod
    def open(cls, gateway: str) -> Any:
        """The runtime: a `steelyard.runtimes.Runtime`, one for all models of this kind. Called inside a running loop.
        `gateway`: the gateway's name. Import here what only the runtime needs."""
        raise NotImplementedError


class RuntimeSection(Section, RuntimeConfig, frozen=True, omit_defaults=False, kw_only=True):
    """The keys that every kind of runtime has. Your own kind derives from it."""

    __renamed__: ClassVar[dict[str, str]] = {"drain": "drain_timeout", "show_last_words": "expose_log_tail"}

    kind: Annotated[
        str, described("`process`: processes of this machine; or `package.module:Class`: a runtime of your own")
    ] = ""
    devices: Annotated[
        tuple[str, ...],
        described("names under `devices`: each replica runs on one of them, where there is most room for it"),
    ] = ()
    replicas: Annotated[Natural, described("how many, without `autoscale`")] = 1
    start_timeout: Annotated[
        Seconds, described("longest from its start until it is ready; then it counts as failed")
    ] = Seconds(600)
    drain_timeout: Annotated[
        Seconds | None,
        described("longest for requests in flight before a replica is stopped; without it, as long as they may take"),
    ] = None
    stop_timeout: Annotated[Seconds, described("from SIGTERM to SIGKILL")] = Seconds(10)
    expose_log_tail: Annotated[
        bool, described("clients whose request waits for a start that fails are told the last lines that it printed")
    ] = False
