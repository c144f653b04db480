"""Shared helpers of the tests that drive real processes over real sockets."""

from .client import BadAnswer, Connection, NoAnswer, Response, Truncated, ask, new_id, request
from .oracle import MIB, Ledger, nothing_left, slots_free
from .serving import Serving, config, model
from .stub import StubReplica, seen_by
from .waiting import PATIENCE, steady, wait_until

__all__ = [
    "MIB",
    "PATIENCE",
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
    "seen_by",
    "slots_free",
    "steady",
    "wait_until",
]
