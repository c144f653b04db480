"""Replicas that Steelyard starts itself, and how many of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..core.scalers import SCALERS
from ..documents import Seconds, Size
from .parts import OWN, Count, Natural, NotNegative, Part, about


class Runtime(Part, frozen=True):
    """Who starts the model's replicas, and how."""

    command: Annotated[
        str | tuple[str, ...],
        about(
            "what to run for one replica, a list of words or a text that is split like a shell's (no shell runs); "
            "`{port}`, `{model}`, `{device}`, `{gpu}`, `{id}` and `{url}` are filled in",
            examples=["python server.py --port {port}"],
        ),
    ]
    kind: Annotated[Literal["process"], about("`process`: processes of this machine")] = "process"
    environment: Annotated[
        dict[str, str], about("variables besides the gateway's own; the same braces are filled in")
    ] = msgspec.field(default_factory=dict)
    folder: Annotated[str, about("working folder; empty: that of the configuration file")] = ""
    url: Annotated[str, about("where a replica listens, with `{port}`; or `unix:/path` with `{id}` in it")] = (
        "http://127.0.0.1:{port}"
    )
    ports: Annotated[str, about("ports to choose `{port}` from, first and last")] = "20000-29999"
    devices: Annotated[
        tuple[str, ...],
        about("names under `devices`: each replica runs on one of them, where there is most room for it"),
    ] = ()
    cpus: Annotated[Count | None, about("cores that each replica has to itself, as long as there are enough")] = None
    replicas: Annotated[Natural, about("how many, without `autoscale`")] = 1
    start_timeout: Annotated[Seconds, about("longest from its start until it is ready; then it counts as failed")] = (
        Seconds(600)
    )
    drain: Annotated[
        Seconds | None,
        about("longest for requests in flight before a replica is stopped; without it, as long as they may take"),
    ] = None
    stop_timeout: Annotated[Seconds, about("from SIGTERM to SIGKILL")] = Seconds(10)
    log: Annotated[str, about("folder for what replicas print; empty: `steelyard` below the folder for state")] = ""
    log_size: Annotated[Size, about("most of it that is kept of each replica")] = Size(10 << 20)
    show_last_words: Annotated[
        bool, about("clients whose request waits for a start that fails are told the last lines that it printed")
    ] = False


class Period(Part, frozen=True):
    """A time of the week in which more replicas are needed than otherwise."""

    start: Annotated[str, about("`08:00`; the replicas are ready by then")]
    end: Annotated[str, about("`18:00`; before `start`: the next day")]
    min: Annotated[Natural, about("replicas at the least in this time")]
    days: Annotated[str, about("`mon-fri`, `sat,sun`; empty: every day")] = ""


class Autoscale(Part, frozen=True):
    """How many replicas, by what is asked of them."""

    mode: Annotated[Literal["act", "recommend"], about("`recommend`: say what would be done, and do nothing")] = "act"
    min: Annotated[Natural, about("replicas at the least; 0: none while nobody asks")] = 1
    max: Annotated[Count | None, about("replicas at the most; without it 100, or `min` if that is more")] = None
    scaler: Annotated[
        str,
        about(
            "`work` (ours), `kpa` (Knative's), `hpa` (Kubernetes'), or `package.module:Class`",
            anyOf=[{"enum": list(SCALERS)}, OWN],
        ),
    ] = "work"
    scaler_options: Annotated[dict[str, Any], about("options of the scaler")] = msgspec.field(default_factory=dict)
    idle: Annotated[Seconds, about("with `min: 0`, time without a request after which the last replica goes")] = (
        Seconds(300)
    )
    up: Annotated[Count | None, about("most replicas added within a minute")] = None
    down: Annotated[Count | None, about("most replicas taken away within a minute")] = None
    cold_start: Annotated[Seconds, about("from the start of a replica to its readiness, until that was measured")] = (
        Seconds(10)
    )
    schedule: Annotated[tuple[Period, ...], about("known peaks")] = ()
    timezone: Annotated[str, about("of `schedule`, such as `Europe/Paris`; empty: the machine's own")] = ""
    cost: Annotated[NotNegative, about("price of a replica for an hour, in whatever currency")] = 0.0
