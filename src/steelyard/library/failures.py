"""Which exceptions of the caller's block are failures of the replica.

By default: connection errors, timeouts, and statuses 5xx and 429 of well-known clients, recognised by the module and
name of their exceptions and base classes, so that none is imported. Others (a KeyError) say nothing of the replica.
"""

from __future__ import annotations

import errno
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from typing import Any

from ..core.errors import OptionError, SteelyardError
from ..core.outcome import Outcome
from ..core.reason import Reason
from .events import logger


class Refused(SteelyardError):
    """No replica can take the request. `reason` is stable; `retry_after` says in how many seconds to try again."""

    def __init__(self, reason: Reason, retry_after: float = 0.0) -> None:
        super().__init__(reason.sentence)
        self.rejection = reason
        self.reason = reason.code
        self.status = reason.status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[Refused], tuple[Reason, float]]:
        return Refused, (self.rejection, self.retry_after)


Predicate = Callable[[BaseException], "Outcome | bool | None"]
Failures = type[BaseException] | Predicate | Iterable[type[BaseException] | Predicate]

CALLER_LEFT = (CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
DECLINED_STATUSES = (429, 503)  # the replica did nothing
NON_FAILURE_STATUSES = (501, 505)
MAX_CHAIN_DEPTH = 8  # exceptions looked at along a chain

UNREACHABLE, BROKEN, TIMEOUT = Outcome.UNREACHABLE, Outcome.CONNECTION_LOST, Outcome.TIMEOUT
UNREACHABLE_ERRNOS = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL}

CLIENT_ALIASES = {"httpx2": "httpx", "anthropic": "openai", "groq": "openai"}  # the same names of exceptions
OUTCOME_BY_EXCEPTION: dict[tuple[str, str], Outcome] = {
    ("builtins", "ConnectionRefusedError"): UNREACHABLE,
    ("builtins", "ConnectionError"): BROKEN,
    ("builtins", "TimeoutError"): TIMEOUT,
    ("socket", "gaierror"): UNREACHABLE,
    ("ssl", "SSLCertVerificationError"): UNREACHABLE,
    ("ssl", "SSLError"): BROKEN,
    ("http", "IncompleteRead"): BROKEN,
    ("http", "BadStatusLine"): BROKEN,
    ("httpx", "ConnectError"): UNREACHABLE,
    ("httpx", "ConnectTimeout"): UNREACHABLE,
    ("httpx", "ProxyError"): UNREACHABLE,
    ("httpx", "PoolTimeout"): Outcome.CLIENT_ERROR,  # of the caller's own connection pool
    ("httpx", "TimeoutException"): TIMEOUT,
    ("httpx", "NetworkError"): BROKEN,
    ("httpx", "RemoteProtocolError"): BROKEN,
    ("requests", "ConnectTimeout"): UNREACHABLE,
    ("requests", "Timeout"): TIMEOUT,
    ("requests", "ConnectionError"): BROKEN,
    ("requests", "ChunkedEncodingError"): BROKEN,
    ("urllib3", "NewConnectionError"): UNREACHABLE,
    ("urllib3", "ConnectTimeoutError"): UNREACHABLE,
    ("urllib3", "TimeoutError"): TIMEOUT,
    ("urllib3", "ProtocolError"): BROKEN,
    ("urllib3", "SSLError"): BROKEN,
    ("urllib3", "MaxRetryError"): BROKEN,
    ("urllib", "URLError"): UNREACHABLE,
    ("aiohttp", "ClientConnectorError"): UNREACHABLE,
    ("aiohttp", "ConnectionTimeoutError"): UNREACHABLE,
    ("aiohttp", "ServerTimeoutError"): TIMEOUT,
    ("aiohttp", "ClientConnectionError"): BROKEN,
    ("aiohttp", "ClientPayloadError"): BROKEN,
    ("openai", "APITimeoutError"): TIMEOUT,
    ("openai", "APIConnectionError"): BROKEN,
    ("websockets", "ConnectionClosedError"): BROKEN,
}
WRAPPER_EXCEPTIONS = {  # the exception inside tells better whether anything was sent
    ("openai", "APIConnectionError"),
    ("openai", "APITimeoutError"),
    ("requests", "ConnectionError"),
    ("urllib", "URLError"),
    ("urllib3", "MaxRetryError"),
}
KNOWN_CLIENTS = {"httpx", "requests", "urllib", "urllib3", "aiohttp", "openai", "websockets", "tritonclient", "grpc"}
OUTCOME_BY_GRPC_STATUS = {
    "UNAVAILABLE": BROKEN,
    "DEADLINE_EXCEEDED": TIMEOUT,
    "RESOURCE_EXHAUSTED": Outcome.OVERLOADED,
    "INTERNAL": Outcome.ERROR,
    "UNKNOWN": Outcome.ERROR,
    "DATA_LOSS": Outcome.ERROR,
}


def default_failures(error: BaseException) -> Outcome | None:
    """How the replica failed; None: it did not."""
    outcome = _classify(error, MAX_CHAIN_DEPTH)
    return outcome if outcome is not None and outcome.failed else None


def outcome_of_status(status: int) -> Outcome:
    """Of an HTTP status of 400 or more."""
    if status in DECLINED_STATUSES:
        return Outcome.OVERLOADED
    return Outcome.ERROR if status >= 500 and status not in NON_FAILURE_STATUSES else Outcome.CLIENT_ERROR


def _classify(error: object, depth: int) -> Outcome | None:
    """None: unknown."""
    if not depth or not isinstance(error, BaseException):
        return None
    if isinstance(error, (*CALLER_LEFT, Refused)):
        return Outcome.CLIENT_ERROR
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := default_failures(one)) is not None), None)
    client, entry = _table_entry(error)
    if client and (said := _outcome_of_carried_status(error)) is not None:
        return said
    if entry is None or entry in WRAPPER_EXCEPTIONS:
        inner = _classify(error.__cause__, depth - 1)
        if inner is None and client:
            first = next(iter(error.args), None)
            inner = _classify(getattr(error, "reason", None), depth - 1) or _classify(first, depth - 1)
        if inner is not None:
            return inner
    if entry is not None:
        return OUTCOME_BY_EXCEPTION[entry]
    return UNREACHABLE if isinstance(error, OSError) and error.errno in UNREACHABLE_ERRNOS else None


def _table_entry(error: BaseException) -> tuple[bool, tuple[str, str] | None]:
    """Whether a known client raised it, and its entry in the table."""
    client = False
    for kind in type(error).__mro__:
        root = kind.__module__.partition(".")[0]
        root = CLIENT_ALIASES.get(root, root)
        client = client or root in KNOWN_CLIENTS
        if (root, kind.__name__) in OUTCOME_BY_EXCEPTION:
            return client, (root, kind.__name__)
    return client, None


def _outcome_of_carried_status(error: BaseException) -> Outcome | None:
    """By the HTTP or gRPC status of an exception; None: it has none."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            value: Any = getattr(holder, name, None)
            if callable(value):  # grpc's `code()`, tritonclient's `status()`
                value = value()
            text = str(int(value)) if isinstance(value, int) else str(getattr(value, "name", value))
            if text.isdecimal() and 100 <= int(text) <= 599:
                return outcome_of_status(int(text))
            if text.removeprefix("StatusCode.") in OUTCOME_BY_GRPC_STATUS:
                return OUTCOME_BY_GRPC_STATUS[text.removeprefix("StatusCode.")]
    return None


class FailureClassifier:
    """The outcome of a block that raised, by the user's rules."""

    def __init__(self, failures: Failures | None) -> None:
        if failures is None:
            rules: list[Any] = [default_failures]
        elif callable(failures):  # a type is callable too
            rules = [failures]
        else:
            rules = list(failures) if isinstance(failures, Iterable) else [failures]
        for rule in rules:
            if not callable(rule) or (isinstance(rule, type) and not issubclass(rule, BaseException)):
                raise OptionError(f"failures: must be exception types, or functions of an exception, not {rule!r}")
        self._rules = rules

    def __call__(self, error: BaseException) -> Outcome:
        """CLIENT_ERROR: nothing is held against the replica."""
        if isinstance(error, CALLER_LEFT):
            return Outcome.CANCELLED
        try:
            for rule in self._rules:
                outcome = _apply_rule(rule, error)
                if outcome is not None:
                    return outcome
        except Exception:
            logger.exception("failures raised on %s; it does not count against the replica", type(error).__name__)
        return Outcome.CLIENT_ERROR


def _apply_rule(rule: Any, error: BaseException) -> Outcome | None:
    said = isinstance(error, rule) if isinstance(rule, type) else rule(error)
    if isinstance(said, Outcome):
        return said
    return (default_failures(error) or Outcome.ERROR) if said else None
