"""Errors of how Steelyard was called. What goes wrong with a request is a `Reject`, no exception."""

from __future__ import annotations


class SteelyardError(Exception):
    """Base of every error Steelyard raises on purpose; `reason` is stable and machine-readable."""

    reason = "error"


class MisuseError(SteelyardError):
    """The caller broke the contract (finished twice…); nothing was changed."""

    reason = "misuse"


class UnknownReplicaError(SteelyardError, LookupError):
    reason = "unknown_replica"


class UnknownModelError(SteelyardError, LookupError):
    reason = "unknown_model"


class OptionError(SteelyardError, ValueError):
    """An option has a value that cannot work; the message names it."""

    reason = "bad_option"


class PolicyFailedError(SteelyardError):
    """A driver that catches what policies raise turns it into this: the balancer refuses the request."""

    reason = "policy_failed"


class IllegalTransitionError(SteelyardError):
    """The event cannot happen in this state; nothing was changed."""

    reason = "illegal_transition"
