"""Steelyard: the load balancer for model serving.

The small API is `LoadBalancer`; the full one is `Balancer`, which decides without threads, clocks or I/O of its own.
"""

TYPE_CHECKING = False  # as in `typing`, which takes a while to import
if TYPE_CHECKING:
    from .core.balancer import Balancer
    from .core.decision import Cancel, Decision, Reject, Send, Wait
    from .core.errors import (
        IllegalTransitionError,
        MisuseError,
        OptionError,
        SteelyardError,
        UnknownModelError,
        UnknownReplicaError,
    )
    from .core.options import HedgeOptions, OutlierDetectionOptions, PoolOptions, RetryOptions
    from .core.outcome import Outcome
    from .core.policies import POLICIES, Policy
    from .core.reason import Reason
    from .core.replica import Event, Replica, State
    from .core.request import Attempt, Request
    from .library import BalancerEvent, EventKind, LoadBalancer, Refused, ReplicaStats, Stats, Target, default_failures

__version__ = "0.2.0"

__all__ = [
    "POLICIES",
    "Attempt",
    "Balancer",
    "BalancerEvent",
    "Cancel",
    "Decision",
    "Event",
    "EventKind",
    "HedgeOptions",
    "IllegalTransitionError",
    "LoadBalancer",
    "MisuseError",
    "OptionError",
    "Outcome",
    "OutlierDetectionOptions",
    "Policy",
    "PoolOptions",
    "Reason",
    "Refused",
    "Reject",
    "Replica",
    "ReplicaStats",
    "Request",
    "RetryOptions",
    "Send",
    "State",
    "Stats",
    "SteelyardError",
    "Target",
    "UnknownModelError",
    "UnknownReplicaError",
    "Wait",
    "default_failures",
]

# Imported when first used: the command line needs little of it, and Ctrl-C is quiet from the first moment.
EXPORTED_FROM = {
    name: module
    for module, names in {
        ".core.balancer": ("Balancer",),
        ".core.decision": ("Cancel", "Decision", "Reject", "Send", "Wait"),
        ".core.errors": tuple(name for name in __all__ if name.endswith("Error")),
        ".core.options": ("HedgeOptions", "OutlierDetectionOptions", "PoolOptions", "RetryOptions"),
        ".core.outcome": ("Outcome",),
        ".core.policies": ("POLICIES", "Policy"),
        ".core.reason": ("Reason",),
        ".core.replica": ("Event", "Replica", "State"),
        ".core.request": ("Attempt", "Request"),
        ".library": ("BalancerEvent", "EventKind", "LoadBalancer", "Refused", "ReplicaStats", "Stats", "Target"),
        ".library.failures": ("default_failures",),
    }.items()
    for name in names
}


if not TYPE_CHECKING:  # type checkers would believe that any name exists

    def __getattr__(name):
        import sys
        from importlib import import_module

        if name not in EXPORTED_FROM:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if sys.version_info < (3, 11):  # noqa: UP036  # pip installs the replica agent from 3.9 on
            raise ImportError(f"steelyard.{name} needs Python 3.11 or newer; on this one only steelyard.replica works")
        value = globals()[name] = getattr(import_module(EXPORTED_FROM[name], __name__), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
