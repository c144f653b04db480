"""Steelyard: the load balancer for model serving.

The small API is `LoadBalancer`; the full one is `Balancer`, which decides without threads, clocks or I/O of its own.
"""

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
from .core.options import EjectionOptions, HedgeOptions, PoolOptions, RetryOptions
from .core.outcome import Outcome
from .core.policies import POLICIES, Policy
from .core.reason import Reason
from .core.replica import Event, Replica, State
from .core.request import Flight, Request
from .library import LoadBalancer, Refused, Target

__version__ = "0.2.0"

__all__ = [
    "POLICIES",
    "Balancer",
    "Cancel",
    "Decision",
    "EjectionOptions",
    "Event",
    "Flight",
    "HedgeOptions",
    "IllegalTransitionError",
    "LoadBalancer",
    "MisuseError",
    "OptionError",
    "Outcome",
    "Policy",
    "PoolOptions",
    "Reason",
    "Refused",
    "Reject",
    "Replica",
    "Request",
    "RetryOptions",
    "Send",
    "State",
    "SteelyardError",
    "Target",
    "UnknownModelError",
    "UnknownReplicaError",
    "Wait",
]
