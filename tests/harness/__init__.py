"""Shared helpers of the tests that drive real processes over real sockets."""

from .client import BadAnswer, Connection, NoAnswer, Response, Truncated, ask, new_id, request
from .oracle import MIB, Ledger, nothing_left, slots_free
from .replicas import scripts
from .replicas.stub import StubReplica, seen_by
from .serving import Serving, config, model
from .waiting import WAIT_TIMEOUT_SECONDS, steady, wait_until

__all__ = [
    "MIB",
    "WAIT_TIMEOUT_SECONDS",
    "BadAnswer",
    "Connection",
    "Ledger",
    "NoAnswer",
    "Response",
    "Serving",
    "StubReplica",
    "Truncated",
    "ask",
    "config",
    "model",
    "new_id",
    "nothing_left",
    "request",
    "scripts",
    "seen_by",
    "slots_free",
    "steady",
    "wait_until",
]
