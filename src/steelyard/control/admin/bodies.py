"""What the admin API takes and gives. The OpenAPI document is made of these types and of the views."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ...config.parts import Positive, Weight, about
from ...config.shape import Concurrency
from ..views import DeviceView, Happening, ModelView, ReplicaView, ScalingView, SizesView, SloView, View

_ID = "^[!-~]*$"  # replicas are named in response headers
PRINTABLE = "^[^\u0000-\u001f\u007f-\u009f]*$"
_PATH = "^(/[!-~]*)?$"


def _text(meaning: str, pattern: str = PRINTABLE, most: int = 256, **schema: Any) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, pattern=pattern, max_length=most, extra_json_schema=schema or None)


Url = Annotated[
    str, about("`http://host:port` or `https://host`; `admin.allow` and `admin.ports` limit it", format="replica-url")
]
Id = Annotated[str, _text("what it is called; empty: host and port", _ID, 128)]
Zone = Annotated[str, _text("where it stands")]
Device = Annotated[str, about("what it runs on, a name under `devices`; empty: none", format="device-or-none")]
Ready = Annotated[
    str, _text("path of its readiness probe, if it is another than the model's", _PATH, 1024, format="path")
]
Instance = Annotated[str, _text("which start of the server this is: another one is a restart")]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is sent: unknown keys are errors, because a misspelt limit is no limit."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and value.endswith("\n"):  # Python's `$` lets this one pass
                raise ValueError(f"`{name}` must be without an end of line")


class NewReplica(Body, frozen=True):
    """A replica to add."""

    url: Url
    id: Id = ""
    weight: Annotated[Weight, about("its size against the other replicas of the model")] = 1.0
    zone: Zone = ""
    device: Device = ""
    ready: Ready = ""


class Lease(Body, frozen=True):
    """A replica announces itself, or says that it is still there."""

    url: Url
    seconds: Annotated[Positive | None, about("for how long; null or more than `admin.lease`: that long")] = None
    instance: Instance = ""
    weight: Annotated[Weight, about("its size against the other replicas of the model")] = 1.0
    zone: Zone = ""
    device: Device = ""
    ready: Ready = ""


class ReplicaChanges(Body, frozen=True):
    """What to change of a replica."""

    weight: Annotated[Weight | None, about("null: what the configuration says")]


class ModelChanges(Body, frozen=True):
    """What to change of a model, at least one of these; null: what the configuration says."""

    policy: Annotated[
        str | UnsetType | None,
        about("a name of `steelyard policies`, or one that the configuration names", format="policy"),
    ] = UNSET
    policy_options: Annotated[dict[str, Any] | UnsetType | None, about("its options")] = UNSET
    concurrency: Annotated[
        Concurrency | UnsetType | None, about("requests a replica takes at once: a number, `auto` or `unlimited`")
    ] = UNSET

    def changes(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in given.items() if value is not UNSET}


class Nothing(Body, frozen=True):
    """What takes nothing."""


class Withdrawal(Body, frozen=True):
    """The query of a replica that leaves."""

    instance: Instance = ""


class LogQuery(Body, frozen=True):
    """How much of a log."""

    lines: Annotated[int, msgspec.Meta(ge=1, le=1000, description="how many, from its end")] = 50


# ---------------------------------------------------------------------- answers


class Models(View, frozen=True):
    models: tuple[ModelView, ...]


class Replicas(View, frozen=True):
    replicas: tuple[ReplicaView, ...]


class Devices(View, frozen=True):
    devices: tuple[DeviceView, ...]


class Sizes(View, frozen=True):
    sizes: tuple[SizesView, ...]


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

    events: tuple[Happening, ...]


class Leased(View, frozen=True):
    seconds: Annotated[float, about("it holds for so long: renew it earlier")]


class Reloaded(View, frozen=True):
    """What is in force now."""

    models: int
    replicas: int


class Status(View, frozen=True):
    status: Literal["ok", "unavailable"]
    reasons: Annotated[tuple[str, ...], about("why not, in words")] = ()


class Detail(View, frozen=True):
    key: Annotated[str, about("path of the value in what was sent; empty: all of it")]
    message: str


class Problem(View, frozen=True):
    code: Annotated[str, about("stable")]
    message: str
    details: tuple[Detail, ...] = ()


class Failure(View, frozen=True):
    """Every answer that is no success."""

    error: Problem
