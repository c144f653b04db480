"""What the admin API accepts and returns, besides the views."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ...config.sections.base import Positive, Weight, described
from ...config.sections.root import Concurrency
from ..observability.views import (
    DeviceView,
    FleetEvent,
    ModelMemoryView,
    ModelView,
    ReplicaView,
    ScalingView,
    SloView,
    View,
)

_ID_PATTERN = "^[!-~]*$"  # replicas are named in response headers
PRINTABLE_PATTERN = "^[^\u0000-\u001f\u007f-\u009f]*$"
_PATH_PATTERN = "^(/[!-~]*)?$"


def _text(meaning: str, pattern: str = PRINTABLE_PATTERN, most: int = 256, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, pattern=pattern, max_length=most, extra_json_schema=schema or None)


Url = Annotated[
    str,
    described(
        "`http://host:port` or `https://host`; `admin.allowed_replicas` and `admin.allowed_ports` limit it",
        format="replica-url",
    ),
]
Id = Annotated[str, _text("what it is called; empty: host and port", _ID_PATTERN, 128)]
Zone = Annotated[str, _text("where it stands")]
Device = Annotated[str, described("what it runs on, a name under `devices`; empty: none", format="device-or-none")]
Ready = Annotated[
    str, _text("path of its readiness probe, if it is another than the model's", _PATH_PATTERN, 1024, format="path")
]
Instance = Annotated[str, _text("which start of the server this is: another one is a restart")]


class ApiInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Unknown keys are errors: a misspelt limit is no limit."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and value.endswith("\n"):  # Python's `$` lets this one pass
                raise ValueError(f"`{name}` must be without an end of line")


class ReplicaRequest(ApiInput, frozen=True):
    url: Url
    weight: Annotated[Weight, described("its size against the other replicas of the model")] = 1.0
    zone: Zone = ""
    device: Device = ""
    ready: Ready = ""


class NewReplica(ReplicaRequest, frozen=True):
    """A replica to add."""

    id: Id = ""


class LeaseRequest(ReplicaRequest, frozen=True):
    """A replica announces itself, or says that it is still there."""

    seconds: Annotated[Positive | None, described("for how long; null or more than `admin.max_lease`: that long")] = (
        None
    )
    instance: Instance = ""


class ReplicaChanges(ApiInput, frozen=True):
    """What to change of a replica."""

    weight: Annotated[Weight | None, described("null: what the configuration says")]


class ModelChanges(ApiInput, frozen=True):
    """What to change of a model, at least one of these; null: what the configuration says."""

    policy: Annotated[
        str | UnsetType | None,
        described("a name of `steelyard policies`, or one that the configuration names", format="policy"),
    ] = UNSET
    policy_options: Annotated[dict[str, Any] | UnsetType | None, described("its options")] = UNSET
    concurrency: Annotated[
        Concurrency | UnsetType | None, described("requests a replica takes at once: a number, `auto` or `unlimited`")
    ] = UNSET

    def changes(self) -> dict[str, Any]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}


class NoInput(ApiInput, frozen=True):
    """What takes nothing."""


class Withdrawal(ApiInput, frozen=True):
    """The query of a replica that leaves."""

    instance: Instance = ""


class LogQuery(ApiInput, frozen=True):
    """How much of a log."""

    lines: Annotated[int, msgspec.Meta(ge=1, le=1000, description="how many, from its end")] = 50


# ---------------------------------------------------------------------- answers


class Models(View, frozen=True):
    models: tuple[ModelView, ...]


class Replicas(View, frozen=True):
    replicas: tuple[ReplicaView, ...]


class Devices(View, frozen=True):
    devices: tuple[DeviceView, ...]


class ModelMemoryList(View, frozen=True):
    model_memory: tuple[ModelMemoryView, ...]


class Slos(View, frozen=True):
    slo: tuple[SloView, ...]


class Scalings(View, frozen=True):
    """Of each model the last few steps."""

    scaling: tuple[ScalingView, ...]


class Log(View, frozen=True):
    """The latest last."""

    model: str
    replica: str
    lines: tuple[str, ...]


class Events(View, frozen=True):
    """The latest last."""

    events: tuple[FleetEvent, ...]


class LeaseGranted(View, frozen=True):
    seconds: Annotated[float, described("how long it holds: renew it earlier")]


class ReloadResult(View, frozen=True):
    """What the configuration lists now, as in the log."""

    models: int
    replicas: int  # without those found, registered, added or started


class Status(View, frozen=True):
    status: Literal["ok", "unavailable"]
    reasons: Annotated[tuple[str, ...], described("why not, in words")] = ()


class ErrorDetail(View, frozen=True):
    key: Annotated[str, described("path of the value in what was sent; empty: all of it")]
    message: str


class ErrorBody(View, frozen=True):
    code: Annotated[str, described("stable")]
    message: str
    details: tuple[ErrorDetail, ...] = ()


class ErrorResponse(View, frozen=True):
    """Every answer that is no success."""

    error: ErrorBody
