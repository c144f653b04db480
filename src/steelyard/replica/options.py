"""The agent's options, checked once."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from ..core.errors import OptionError
from ..units import parse_share, parse_size
from .memory.baseline import CacheAllowance

_GATEWAY = re.compile(r"https?://[^/?#\s@]+(/[^?#\s@]*)?|unix:/[^\0]+", re.IGNORECASE)
_URL = re.compile(r"https?://[^/?#\s@]+/?|unix:/[^\0]+", re.IGNORECASE)
_NAME = re.compile(r"[^\x00-\x1f\x7f]+")
_ID = re.compile(r"[!-~]{0,128}")  # it is named in headers of answers
_TOKEN = re.compile(r"[\x21-\x7e]*")
_PATH = re.compile(r"/[^\s#]*")
ANY_MODEL = "*"  # the server has only its loadable models


class Options(NamedTuple):
    model: str
    gateways: tuple[str, ...]
    url: str  # empty: what the first request tells
    id: str  # empty: host and port of the URL
    weight: float
    zone: str
    device: str
    token: str
    lease: float
    concurrency: int | None
    max_queue: int
    drain_timeout: float
    drain_idle: float
    deregistration_delay: float
    ready_path: str
    bypass_paths: frozenset[str]
    max_cached_memory: CacheAllowance | None
    control_token: str

    def __repr__(self) -> str:  # a token has no place in a log
        return f"<options of a replica of {self.model!r}>"


def gateways(given: str | Iterable[str] | None) -> tuple[str, ...]:
    if given is None:
        given = os.environ.get("STEELYARD_GATEWAY", "")
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",")]
    found = tuple(dict.fromkeys(address.rstrip("/") for address in given if address))
    for address in found:
        if not _GATEWAY.fullmatch(address):
            raise OptionError(f"gateway: {address!r} is no address of an admin API; write http://127.0.0.1:9080")
        _checked("gateway", address)
    return found


def url(given: str | None) -> str:
    given = os.environ.get("STEELYARD_URL", "") if given is None else given
    if given and not _URL.fullmatch(given):
        raise OptionError(f"url: {given!r} is not how a gateway reaches this replica; write http://10.0.0.1:8001")
    _checked("url", given)
    return given.rstrip("/")


def _checked(key: str, address: str) -> None:
    """A port of 99999, an open bracket."""
    from urllib.parse import urlsplit

    try:
        if not address.startswith("unix:"):
            urlsplit(address).port  # noqa: B018
    except ValueError as problem:
        raise OptionError(f"{key}: {address!r}: {problem}") from None


def token(given: str | None, key: str = "token", variable: str = "STEELYARD_TOKEN") -> str:
    given = os.environ.get(variable, "").strip() if given is None else given
    if not _TOKEN.fullmatch(given):
        raise OptionError(f"{key}: it has a space or a character that no header can carry")
    return given


def paths(bypass_paths: Iterable[str], ready_path: str) -> frozenset[str]:
    if isinstance(bypass_paths, str):
        raise OptionError("bypass_paths: give a list of paths")
    for key, path in [*(("bypass_paths", path) for path in bypass_paths), ("ready_path", ready_path or "/")]:
        if not _PATH.fullmatch(path):
            raise OptionError(f"{key}: {path!r} is not a path of the app, such as /health")
    return frozenset(path.partition("?")[0] for path in (*bypass_paths, ready_path) if path)


def name(key: str, given: str, *, needed: bool = False) -> str:
    if (needed and not given) or (given and not _NAME.fullmatch(given)):
        raise OptionError(f"{key}: {given!r} is not a valid name")
    return given


def replica_id(given: str) -> str:
    if not _ID.fullmatch(given):
        raise OptionError(f"id: {given!r} is not a valid id of a replica: at most 128 ASCII characters, without spaces")
    return given


def number(key: str, given: float, least: float, most: float) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or math.isnan(given):
        raise OptionError(f"{key}: must be a number, not {given!r}")
    if not least <= given <= most:
        raise OptionError(f"{key}: must be from {least:g} to {most:g}, not {given!r}")
    return float(given)


def count(key: str, given: int, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= 10**9:
        raise OptionError(f"{key}: must be a whole number of at least {least}, not {given!r}")
    return given


def max_cached_memory(given: str | int | None) -> CacheAllowance | None:
    try:
        if isinstance(given, str) and "%" in given:
            return CacheAllowance(share=parse_share(given))
        return None if given is None else CacheAllowance(parse_size(given))
    except ValueError as problem:
        raise OptionError(f"max_cached_memory: {problem}") from None
