"""How replicas are probed, and changed through the admin API."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from msgspec import field

from ...documents import Seconds
from .base import Count, Port, Section, Status, described


class SyntheticRequest(Section, frozen=True):
    """A request that Steelyard itself sends to a replica."""

    path: Annotated[str, described("where to, with a query if it needs one", examples=["/v1/completions"])]
    method: Annotated[str, described("its method; empty: POST with a body, GET without")] = ""
    headers: Annotated[dict[str, str], described("headers to send besides")] = field(default_factory=dict)
    body: Annotated[Any, described("text is sent as it is, anything else as JSON")] = None
    timeout: Annotated[Seconds, described("longest that the answer may take")] = Seconds(30)


class InferenceProbe(SyntheticRequest, frozen=True):
    """A real inference that must succeed before a replica counts as ready, and again now and then."""

    __renamed__: ClassVar[dict[str, str]] = {"every": "interval"}

    status: Annotated[Status, described("the status it must answer")] = 200
    contains: Annotated[str, described("text that must be in the answer")] = ""
    interval: Annotated[Seconds, described("time between two of these once it is ready; 0: every probe")] = Seconds(30)


class WarmUpRequest(SyntheticRequest, frozen=True):
    """A request sent to a replica that just became ready, before the first real one."""

    times: Annotated[Count, described("how often, one after the other")] = 1


class HealthConfig(Section, frozen=True):
    """How to ask whether a replica is ready, and how often."""

    __renamed__: ClassVar[dict[str, str]] = {"live": "live_path"}

    enabled: Annotated[bool, described("false: every replica counts as ready as soon as it is known")] = True
    path: Annotated[str, described("path of the readiness probe; empty: what the dialect says")] = ""
    live_path: Annotated[str, described("path of the liveness probe; empty: what the dialect says")] = ""
    port: Annotated[Port, described("port of both, if it is not the replica's own")] = 0
    headers: Annotated[dict[str, str], described("sent with probes and warm-ups")] = field(default_factory=dict)
    command: Annotated[
        tuple[str, ...],
        described(
            "a program to run instead: exit code 0 is ready, 75 loading; fills in `{url} {host} {port} {id} {model}`",
            examples=[["./ready.sh", "{host}", "{port}"]],
        ),
    ] = ()
    interval: Annotated[Seconds, described("time between two probes of a ready replica, ±10 %")] = Seconds(5)
    loading_interval: Annotated[Seconds, described("time between two probes of one that is not ready")] = Seconds(0.5)
    timeout: Annotated[Seconds, described("longest that a probe may take")] = Seconds(2)
    rise: Annotated[Count, described("good probes in a row before a replica is ready")] = 1
    fall: Annotated[Count, described("bad probes in a row before a ready replica is taken out")] = 2
    inference: Annotated[InferenceProbe | None, described("a real inference as part of the probe")] = None
    warm_up: Annotated[tuple[WarmUpRequest, ...], described("requests sent before the first real one")] = ()


class LoadMetricsConfig(Section, frozen=True):
    """What a replica itself says of its load. It corrects the gateway's own counts and never replaces them."""

    enabled: Annotated[bool | None, described("whether its metrics are read; without it, the dialect says")] = None
    path: Annotated[str, described("path of its metrics; empty: what the dialect says")] = ""
    port: Annotated[Port, described("port of its metrics, if it is not the replica's own")] = 0
    interval: Annotated[Seconds, described("time between two reads, at least a second")] = Seconds(5)
    orca: Annotated[bool | None, described("ask for load reports (ORCA); unset: by dialect, or with a `device`")] = None


class AdminConfig(Section, frozen=True):
    """The admin API: the fleet, shown and changed while it runs."""

    __renamed__: ClassVar = {"allow": "allowed_replicas", "ports": "allowed_ports", "lease": "max_lease"}

    listen: Annotated[
        str | None,
        described("`host:port` or `unix:/path`; empty: off; unset: 127.0.0.1:9080", example="127.0.0.1:9080"),
    ] = None
    token_file: Annotated[str, described("file of bearer tokens, one a line; required unless it is local")] = ""
    allowed_replicas: Annotated[
        tuple[str, ...], described("networks and host names (`*.models.svc` too) of replicas that may be added")
    ] = ("127.0.0.0/8", "::1/128")
    allowed_ports: Annotated[tuple[str, ...], described("their ports, each `N` or `N-M`")] = ("1024-65535",)
    max_lease: Annotated[Seconds, described("longest that a registration holds without renewal")] = Seconds(60)
