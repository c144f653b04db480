"""The forms of single values. Each check says in words what is wrong with one; an empty text: nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from math import isfinite
from typing import Any

from ..addresses import unmapped_network
from ..documents import Key, Problem, did_you_mean_or_list

_PATH = re.compile(r"/[\x21-\x7e]*")
_HTTP_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_HEADER_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
FRAMING_HEADERS = {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}


def is_token(text: str) -> bool:
    """May it be the name of a header, or a method?"""
    return _HTTP_TOKEN.fullmatch(text) is not None


def is_serializable(value: Any) -> bool:
    """Can it be sent to a worker, and is it the same there?"""
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
    """A path that Steelyard itself asks for; it may have a query."""
    path, _, query = target.partition("?")
    if not _PATH.fullmatch(f"/{query}"):
        return f"{target!r}: write spaces and letters outside ASCII as they are in a URL, %20 for a space"
    if "#" in query:
        return f"{target!r}: a query ends before #"
    if "{" in target or "}" in target:
        return f"{target!r}: nothing is filled in for braces here: write the name itself"
    return path_error(path)


def header_problems(key: Key, headers: Mapping[str, str]) -> Iterator[Problem]:
    """Of headers that Steelyard sends besides its own."""
    seen: set[str] = set()
    for name, value in headers.items():
        if not is_token(name):
            yield Problem((*key, name), f"{name!r} is not the name of a header: write for example x-api-key")
        elif (
            name.lower() in FRAMING_HEADERS and name.lower() != "host"
        ):  # which may choose among several behind one address
            yield Problem((*key, name), f"{name!r} is for Steelyard to send: leave it out")
        elif name.lower() in seen:
            yield Problem((*key, name), f"{name!r} is there twice")
        elif not _HEADER_VALUE.fullmatch(value):
            what = "the value of a header is visible ASCII on one line, with no space before or after"
            yield Problem((*key, name), what)  # without the value: it may be a secret
        seen.add(name.lower())


def parse_network(text: str) -> IPv4Network | IPv6Network | None:
    """None: it is none."""
    try:
        return unmapped_network(text)
    except ValueError:
        return None


def network_hint(text: str) -> str:
    """To put behind a message, if `text` is an address with a wrong prefix; else nothing."""
    try:
        return f": did you mean {ip_network(text, strict=False)}?"
    except ValueError:
        return ""


# The rules of what is chosen by name and takes options of its own: a policy, a scaler.


def option_problems(
    key: Key, name: str, given: Mapping[str, Any], known: Mapping[str, Any], make: Callable[[], object]
) -> Iterator[Problem]:
    """`known`: the options it takes; `make` makes one with those that are given."""
    unknown = [option for option in given if option not in known]
    for option in unknown:
        hint = did_you_mean_or_list(option, known, otherwise="it takes") or " (it takes none)"
        yield Problem((*key, option), f"{name} has no option {option!r}{hint}")
    if not is_serializable(given):
        yield Problem(key, "must be text, numbers, true or false, or lists and mappings of these")
    elif not unknown:
        try:
            make()
        except Exception as problem:  # whatever a user's class raises
            yield Problem(key, str(problem))
