"""Checks of single values. Each says what is wrong; an empty text: nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from math import isfinite
from typing import Any

from ..addresses import unmapped_network
from ..core.plugins import plugin_options, renamed_options
from ..documents import Key, Problem, did_you_mean_or_list

_PATH = re.compile(r"/[\x21-\x7e]*")
_HTTP_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_HEADER_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
MAX_NAME_CHARS = 256  # of models, tenants and devices
FRAMING_HEADERS = {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}


def is_token(text: str) -> bool:
    """Is it valid as a header name or a method?"""
    return _HTTP_TOKEN.fullmatch(text) is not None


def is_serializable(value: Any) -> bool:
    """Does it reach a worker unchanged?"""
    if isinstance(value, dict):
        return all(isinstance(name, str) and is_serializable(inner) for name, inner in value.items())
    if isinstance(value, list):
        return all(map(is_serializable, value))
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, int):
        return abs(value) < 1 << 63
    return value is None or isinstance(value, str)


def path_error(path: str) -> str:
    if not path.startswith("/"):
        return f"{path!r}: a path begins with a slash"
    if not _PATH.fullmatch(path):
        return f"{path!r}: write spaces and letters outside ASCII as they are in a URL, %20 for a space"
    if "?" in path or "#" in path:
        return f"{path!r}: a path ends before ? and #"
    if "//" in path or any(part in (".", "..") for part in path.split("/")):
        return f"{path!r}: write it without //, . and .."
    return ""


def target_error(target: str) -> str:
    """A path that Steelyard requests; it may have a query."""
    path, _, query = target.partition("?")
    if not _PATH.fullmatch(f"/{query}"):
        return f"{target!r}: write spaces and letters outside ASCII as they are in a URL, %20 for a space"
    if "#" in query:
        return f"{target!r}: a query ends before #"
    if "{" in target or "}" in target:
        return f"{target!r}: nothing is filled in for braces here: write the name itself"
    return path_error(path)


def header_problems(key: Key, headers: Mapping[str, str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for name, value in headers.items():
        if not is_token(name):
            yield Problem((*key, name), f"{name!r} is not the name of a header: write for example x-api-key")
        elif name.lower() in FRAMING_HEADERS - {"host"}:  # a host may choose among several behind one address
            yield Problem((*key, name), f"{name!r} is for Steelyard to send: leave it out")
        elif name.lower() in seen:
            yield Problem((*key, name), f"{name!r} is there twice")
        elif not _HEADER_VALUE.fullmatch(value):
            # Without the value: it may be a secret.
            what = "the value of a header is visible ASCII on one line, with no space before or after"
            yield Problem((*key, name), what)
        seen.add(name.lower())


def parse_network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return unmapped_network(text)
    except ValueError:
        return None


def network_hint(text: str) -> str:
    """For an address with a wrong prefix; else empty."""
    try:
        return f": did you mean {ip_network(text, strict=False)}?"
    except ValueError:
        return ""


def network_problems(key: Key, texts: Iterable[str]) -> Iterator[Problem]:
    for place, text in enumerate(texts):
        if parse_network(text) is None:
            meant = network_hint(text) or ": write for example 10.0.0.0/8, 192.168.1.7 or fd00::/8"
            yield Problem((*key, place), f"{text!r} is not a network{meant}")


def zero_problems(key: Key, part: object, *names: str) -> Iterator[Problem]:
    return (Problem((*key, name), "must be more than 0") for name in names if getattr(part, name) == 0)


def name_problems(key: Key, what: str) -> Iterator[Problem]:
    """Of the last part of a key, where that is a name."""
    name = str(key[-1])
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        yield Problem(key, f"{what} has 1 to {MAX_NAME_CHARS} characters, all of them printable")


def option_problems(
    key: Key, name: str, kind: type[object], given: Mapping[str, Any], make: Callable[[], object]
) -> Iterator[Problem]:
    """Of a policy or a scaler of the class `kind`. `make` makes one with the options given."""
    known, renamed = plugin_options(kind), renamed_options(kind)
    unknown = [option for option in given if option not in known]
    for option in unknown:
        hint = f": renamed to `{renamed[option]}`" if option in renamed else ""
        hint = hint or did_you_mean_or_list(option, known, otherwise="it takes") or " (it takes none)"
        yield Problem((*key, option), f"{name} has no option {option!r}{hint}")
    if not is_serializable(given):
        yield Problem(key, "must be text, numbers, true or false, or lists and mappings of these")
    elif not unknown:
        try:
            make()
        except Exception as problem:  # whatever a user's class raises
            yield Problem(key, str(problem))
