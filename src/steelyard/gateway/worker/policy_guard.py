"""A user's own policy may raise anything at any time: its errors are logged, and cost at most one request.

What `choose` and `patience` raise becomes a PolicyFailedError, for which the request is refused (`policy_failed`). What
the hooks raise, which only tell the policy of something, is logged alone.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from ...core.errors import PolicyFailedError
from ...core.policies.base import Policy
from ...core.replica import Replica
from .supervisor_channel import log

LOG_INTERVAL_SECONDS: Final = 10.0  # between two lines on the same kind of error
HOOKS: Final = (
    "joined",
    "left",
    "reweighted",
    "restarted",
    "removed",
    "sent",
    "first_byte",
    "released",
    "finished",
    "tick",
)


class PolicyErrorLog:
    def __init__(self, write: Callable[[str], None] = log, clock: Callable[[], float] = monotonic) -> None:
        self._write = write
        self._clock = clock
        self._logged: dict[tuple[str, str, str], tuple[float, int]] = {}  # kind of error → when, and how many since

    def record(self, policy: str, method: str, problem: Exception, consequence: str) -> None:
        key = (policy, method, type(problem).__name__)
        now = self._clock()
        logged_at, since = self._logged.get(key, (now - LOG_INTERVAL_SECONDS, 0))
        if now < logged_at + LOG_INTERVAL_SECONDS:
            self._logged[key] = (logged_at, since + 1)
            return
        self._logged[key] = (now, 0)
        repeated = f" ({since} more like it since the last line)" if since else ""
        self._write(f"error policy {policy}: {method} raised {_describe(problem)}: {consequence}{repeated}")


def is_own_policy(name: str) -> bool:
    """Named as `package.module:Class`."""
    return ":" in name


def guard_policy(policy: Policy, name: str, errors: PolicyErrorLog) -> None:
    """Replaces the methods of this one instance: its class stays what the user wrote."""
    for method in HOOKS:
        if getattr(type(policy), method) is not getattr(Policy, method):
            setattr(policy, method, _guarded_hook(getattr(policy, method), name, method, errors))
    setattr(policy, "choose", _guarded_choose(policy.choose, name, errors))  # noqa: B010  # mypy: it is a method
    if type(policy).patience is not Policy.patience:
        setattr(policy, "patience", _guarded_patience(policy.patience, name, errors))  # noqa: B010
    if type(policy).predict_first_byte is not Policy.predict_first_byte:
        setattr(policy, "predict_first_byte", _guarded_prediction(policy.predict_first_byte, name, errors))  # noqa: B010


def _guarded_hook(hook: Callable[..., None], name: str, method: str, errors: PolicyErrorLog) -> Callable[..., None]:
    def guarded(*arguments: Any) -> None:
        try:
            hook(*arguments)
        except Exception as problem:
            errors.record(name, method, problem, "the request goes on")

    return guarded


def _guarded_choose(choose: Callable[..., Any], name: str, errors: PolicyErrorLog) -> Callable[..., Replica]:
    def guarded(request: Any, candidates: Any, now: float) -> Replica:
        try:
            replica = choose(request, candidates, now)
            if not isinstance(replica, Replica):
                raise TypeError(f"it returned {replica!r}, which is no replica")
        except Exception as problem:
            errors.record(name, "choose", problem, "its request is refused with policy_failed")
            raise PolicyFailedError(name) from problem
        return replica

    return guarded


def _guarded_patience(patience: Callable[..., float], name: str, errors: PolicyErrorLog) -> Callable[..., float]:
    def guarded(request: Any, replica: Any, ahead: float, now: float) -> float:
        try:
            return float(patience(request, replica, ahead, now))
        except Exception as problem:
            errors.record(name, "patience", problem, "its request is refused with policy_failed")
            raise PolicyFailedError(name) from problem

    return guarded


def _guarded_prediction(
    predict: Callable[..., float | None], name: str, errors: PolicyErrorLog
) -> Callable[..., float | None]:
    def guarded(request: Any, candidates: Any, now: float) -> float | None:
        try:
            seconds = predict(request, candidates, now)
            return None if seconds is None else float(seconds)
        except Exception as problem:
            errors.record(name, "predict_first_byte", problem, "the estimator predicts")
            return None

    return guarded


def _describe(problem: Exception) -> str:
    """In one line, with the place where it was raised."""
    message = " ".join(str(problem).split())
    frames = traceback.extract_tb(problem.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(problem).__name__}: {message}{where}" if message else f"{type(problem).__name__}{where}"
