"""The library for programs that balance their own calls: the core, a lock and the monotonic clock. See docs/library.md.

lb = LoadBalancer(replicas=["a", "b", "c"])
target = lb.route_request()
lb.complete_request(target)
"""

from .balancer import LoadBalancer
from .events import BalancerEvent, EventKind
from .failures import Refused, default_failures
from .routed_request import Target
from .stats import ReplicaStats, Stats

__all__ = [
    "BalancerEvent",
    "EventKind",
    "LoadBalancer",
    "Refused",
    "ReplicaStats",
    "Stats",
    "Target",
    "default_failures",
]
