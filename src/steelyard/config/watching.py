"""The parts of the configuration about replicas: how they are found, asked and changed while the gateway runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..documents import Seconds
from .parts import Count, Part, Port, Status, about


class Asking(Part, frozen=True):
    """A request that Steelyard itself sends to a replica."""

    path: Annotated[str, about("where to, with a query if it needs one", examples=["/v1/completions"])]
    method: Annotated[str, about("its method; empty: POST with a body, GET without")] = ""
    headers: Annotated[dict[str, str], about("headers to send besides")] = msgspec.field(default_factory=dict)
    body: Annotated[Any, about("text is sent as it is, anything else as JSON")] = None
    timeout: Annotated[Seconds, about("longest that the answer may take")] = Seconds(30)


class Inference(Asking, frozen=True):
    """A real inference that must succeed before a replica counts as ready, and again now and then."""

    status: Annotated[Status, about("the status it must answer")] = 200
    contains: Annotated[str, about("text that must be in the answer")] = ""
    every: Annotated[Seconds, about("time between two of these while it is ready; 0: with every probe")] = Seconds(30)


class WarmUp(Asking, frozen=True):
    """A request sent to a replica that just became ready, before the first real one."""

    times: Annotated[Count, about("how often, one after the other")] = 1


class Health(Part, frozen=True):
    """How to ask whether a replica is ready, and how often."""

    enabled: Annotated[bool, about("false: every replica counts as ready as soon as it is known")] = True
    path: Annotated[str, about("path of the readiness probe; empty: what the dialect says")] = ""
    live: Annotated[str, about("path of the liveness probe; empty: what the dialect says")] = ""
    port: Annotated[Port, about("port of both, if it is not the replica's own")] = 0
    headers: Annotated[
        dict[str, str],
        about("headers of the probes and reads of metrics, and of inferences and warm-ups without their own"),
    ] = msgspec.field(default_factory=dict)
    command: Annotated[
        tuple[str, ...],
        about(
            "a program to run instead: exit code 0 is ready, 75 is loading; "
            "`{url}`, `{host}`, `{port}`, `{id}` and `{model}` are filled in",
            examples=[["./ready.sh", "{host}", "{port}"]],
        ),
    ] = ()
    interval: Annotated[Seconds, about("time between two probes of a ready replica, give or take a tenth")] = Seconds(5)
    loading_interval: Annotated[Seconds, about("time between two probes of one that is not ready")] = Seconds(0.5)
    timeout: Annotated[Seconds, about("longest that a probe may take")] = Seconds(2)
    rise: Annotated[Count, about("good probes in a row before a replica is ready")] = 1
    fall: Annotated[Count, about("bad probes in a row before a ready replica is taken out")] = 2
    inference: Annotated[Inference | None, about("a real inference as part of the probe")] = None
    warm_up: Annotated[tuple[WarmUp, ...], about("requests sent before the first real one")] = ()


class Load(Part, frozen=True):
    """What a replica itself says of its load. It corrects the gateway's own counts and never replaces them."""

    enabled: Annotated[bool | None, about("whether its metrics are read; without it, the dialect says")] = None
    path: Annotated[str, about("path of its metrics; empty: what the dialect says")] = ""
    port: Annotated[Port, about("port of its metrics, if it is not the replica's own")] = 0
    interval: Annotated[Seconds, about("time between two reads, at least a second")] = Seconds(5)
    orca: Annotated[
        bool | None,
        about(
            "ask for load reports in answers (ORCA); without it, as the dialect says, and where a replica has a "
            "`device`"
        ),
    ] = None


class Discovery(Part, frozen=True):
    """Where replicas are found besides those listed. One of `file` and `dns`."""

    file: Annotated[
        str, about("a list in YAML or JSON, ours or of Prometheus (`file_sd`); read again when it changes")
    ] = ""
    dns: Annotated[str, about("a name; each of its addresses is a replica", examples=["llama.models.svc"])] = ""
    type: Annotated[Literal["a", "srv"], about("`a`: addresses, both IPv4 and IPv6; `srv`: hosts with ports")] = "a"
    port: Annotated[Port, about("port of the addresses; needed with `type: a`, for `srv` names its own")] = 0
    scheme: Annotated[Literal["http", "https"], about("how they are spoken to")] = "http"
    server: Annotated[str, about("name server to ask, `host:port`; empty: those of the system")] = ""
    interval: Annotated[Seconds, about("longest time between two looks; DNS is asked earlier if its TTL says so")] = (
        Seconds(30)
    )
    hold: Annotated[Seconds, about("the sudden loss of more than half of the replicas is believed after this long")] = (
        Seconds(60)
    )


class Admin(Part, frozen=True):
    """The admin API: the fleet, shown and changed while it runs."""

    listen: Annotated[
        str | None,
        about("`host:port` or `unix:/path`; empty: no admin API; without it, 127.0.0.1:9080 if that is free"),
    ] = None
    token_file: Annotated[
        str, about("file with the bearer tokens that may use it, one a line; needed where other machines can reach it")
    ] = ""
    allow: Annotated[
        tuple[str, ...],
        about("networks and host names (`*.models.svc` too) of the replicas that may be added or registered"),
    ] = ("127.0.0.0/8", "::1/128")
    ports: Annotated[tuple[str, ...], about("their ports, each `N` or `N-M`")] = ("1024-65535",)
    lease: Annotated[Seconds, about("longest time for which a registration holds without being renewed")] = Seconds(60)
