"""The library for programs that balance their own calls: the core, a lock and the monotonic clock. See docs/library.md.

lb = LoadBalancer(replicas=["a", "b", "c"])
target = lb.route_request()
lb.complete_request(target)
"""

from .balancer import LoadBalancer
from .errors import Refused
from .events import BalancerEvent, EventKind
from .failures import default_failures
from .stats import ReplicaStats, Stats
from .target import Target

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
