"""Parses path, query and body of a request. Reports all errors at once."""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isinf
from typing import Any, TypeVar, get_type_hints
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from starlette.requests import Request

from ...documents import Key, Problem, format_key, printable, type_problems
from .errors import ApiError, validation_error
from .schemas import ApiInput, ErrorDetail

MAX_BODY_BYTES = 1 << 20
_MAX_KEYS = 64  # each unknown one is compared with all that are known
_MAX_SHOWN_CHARS = 100  # of a key, in a message
_MAX_CONTAINERS = 64  # also bounds their nesting, for recursive code
_NUMBER = re.compile(r"-?[0-9]{1,9}")

B = TypeVar("B", bound=ApiInput)


def path_parameters(request: Request) -> dict[str, str]:
    """Decoded only now: a model's name may hold a slash."""
    try:
        return {name: unquote_to_bytes(text).decode() for name, text in request.path_params.items()}
    except UnicodeDecodeError:
        raise ApiError(404, "no such path: it is not UTF-8") from None


def query(request: Request, kind: type[B]) -> B:
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_KEYS,
        )
    except ValueError:
        raise ApiError(422, "the query is not UTF-8, or too long") from None
    types = get_type_hints(kind)
    given: dict[str, str | int] = {}
    for name, text in pairs:
        if name in given:
            raise validation_error([ErrorDetail(key=name, message="it is there twice")])
        given[name] = int(text) if types.get(name) is int and _NUMBER.fullmatch(text) else text
    return _convert(given, kind)


async def body(request: Request, kind: type[B]) -> B:
    """Empty means `{}` where nothing is required."""
    data = await _bytes(request)
    if not data and kind.__struct_fields__ == ():
        return kind()
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if data and declared != "application/json":
        raise ApiError(415, "send the body as `content-type: application/json`")
    return _convert(_parsed(data), kind)


async def _bytes(request: Request) -> bytes:
    too_large = ApiError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise too_large
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > MAX_BODY_BYTES:
            raise too_large
    return bytes(found)


def _parsed(data: bytes) -> Any:
    try:
        value = _JSON.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        what = str(problem) if data else "it is empty"
        raise ApiError(400, f"the body is not JSON: {what}") from None
    if data.count(b"[") + data.count(b"{") > _MAX_CONTAINERS:
        raise validation_error([ErrorDetail(key="", message=f"more than {_MAX_CONTAINERS} objects and lists")])
    json.loads(data, object_pairs_hook=_refuse_repeated, parse_int=str)  # msgspec takes the last silently
    return value


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    names = Counter(name for name, _ in pairs)
    if repeated := [printable(name[:_MAX_SHOWN_CHARS]) for name, times in names.items() if times > 1]:
        raise ApiError(400, f"the key `{repeated[0]}` is there twice in one object: send it once")


def _number(text: str) -> int | float:
    """JSON has one kind of number: 2.0 is an integer too."""
    value = float(text)
    if isinf(value):
        raise ValueError("number out of range")
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value


_JSON = msgspec.json.Decoder(float_hook=_number)


def _convert(data: Any, kind: type[B]) -> B:
    if isinstance(data, dict) and len(data) > _MAX_KEYS:
        raise validation_error([ErrorDetail(key="", message=f"more than {_MAX_KEYS} keys")])
    if found := [_error_detail(problem) for problem in type_problems(data, kind)]:
        raise validation_error(found)
    return msgspec.convert(data, kind)


def _error_detail(problem: Problem) -> ErrorDetail:
    key: Key = problem.key if problem.at is None else problem.at
    return ErrorDetail(key=format_key(key) if key else "", message=problem.what)
