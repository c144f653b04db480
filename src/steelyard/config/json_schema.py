"""The JSON schema of the configuration, for editors."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from ..documents import Seconds, Share, Size, Tagged, is_tagged, shorthand
from ..units import BYTES_PER_UNIT, SECONDS_PER_UNIT, format_size, parse_duration, parse_size
from .sections.base import CLASS_PATH_SCHEMA
from .sections.root import Config

DAY_SECONDS = SECONDS_PER_UNIT["d"]


def schema() -> dict[str, Any]:
    """Accepts what the types accept; only `steelyard check` knows the rules."""
    tagged: set[type[Tagged]] = set()

    def hook(kind: type) -> dict[str, Any]:
        if is_tagged(kind):
            tagged.add(kind)
            return _any_kind(kind)
        return _quantity(kind)

    made = msgspec.json.schema(_schema_twin(Config), schema_hook=hook)
    for kind in sorted(tagged, key=lambda kind: kind.noun):
        structs = [_schema_twin(kind.struct_of(name)) for name in kind.kinds]
        made["$defs"] |= msgspec.json.schema_components(structs, schema_hook=hook, ref_template="#/$defs/{name}")[1]
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Steelyard configuration", **made}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(whole))  # lists, where a default is a tuple
    return plain


def _quantity(kind: type) -> dict[str, Any]:
    if kind is Seconds:
        return {**_number(SECONDS_PER_UNIT, "number"), "examples": ["200ms", "1.5s", "2m"]}
    if kind is Size:
        return {**_number(BYTES_PER_UNIT, "integer"), "examples": ["64KiB", "10MiB", "80GiB"]}
    if kind is Share:
        return {**_number(["%"], "number"), "maximum": 1, "examples": ["10%", 0.1]}
    raise NotImplementedError(kind.__name__)


def _number(units: Any, bare: str) -> dict[str, Any]:
    some = "|".join(unit for unit in units if unit)
    return {"type": [bare, "string"], "minimum": 0, "pattern": rf"^\s*[0-9]+(\.[0-9]+)?\s*({some})?\s*$"}


def _any_kind(kind: type[Tagged]) -> dict[str, Any]:
    """A kind of the table, or a user's own, of which nothing is known."""
    own = {"type": "object", "properties": {"kind": CLASS_PATH_SCHEMA}, "required": ["kind"]}
    return {"anyOf": [*({"$ref": f"#/$defs/{kind.struct_of(name).__name__}"} for name in kind.kinds), own]}


@cache
def _schema_twin(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The same struct with defaults as people write them: msgspec leaves out those of Seconds, Size and Share."""
    fields = [
        _kind_field(kind, field)
        if field.name == "kind" and issubclass(kind, Tagged)
        else (field.name, _with_schema_twins(field.type), _default(field))
        for field in msgspec.structs.fields(kind)
    ]
    doc = {"__doc__": kind.__doc__}
    return msgspec.defstruct(kind.__name__, fields, namespace=doc, forbid_unknown_fields=True, kw_only=True)


def _kind_field(kind: type[Tagged], field: msgspec.structs.FieldInfo) -> tuple[str, Any, Any]:
    """May be left out if it is the default kind."""
    name = kind.name_of(kind)
    meaning = get_args(field.type)[1:]
    default = name if name == kind.default_kind else msgspec.field()
    return "kind", Annotated[(Literal[name], *meaning)], default


def _with_schema_twins(kind: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _schema_twin(kind) | str if shorthand(kind) else _schema_twin(kind)
    if origin is Annotated:
        return Annotated[(_with_schema_twins(parts[0]), *parts[1:])]
    if origin in (Union, UnionType):
        return reduce(or_, map(_with_schema_twins, parts))
    if origin in (tuple, dict):
        return origin[tuple(map(_with_schema_twins, parts))]
    return kind


def _default(field: msgspec.structs.FieldInfo) -> Any:
    value = field.default
    if field.required or isinstance(value, msgspec.Struct):
        return msgspec.field() if field.required else msgspec.field(default_factory=object)  # of an object: not written
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return _default_text(value)


def _default_text(value: Any) -> Any:
    if isinstance(value, Seconds):
        text = f"{value / DAY_SECONDS:g}d" if value >= DAY_SECONDS else f"{value:g}s"
        return text if parse_duration(text) == value else float(value)
    if isinstance(value, Size):
        text = format_size(value).replace(" ", "")
        return text if parse_size(text) == value else int(value)
    return float(value) if isinstance(value, Share) else value
