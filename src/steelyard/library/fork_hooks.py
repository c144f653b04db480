"""A process that forks: the child gets balancers that work, without the requests of its parent.

No fork happens in the middle of a decision. In the child the parent's threads and loops do not exist, so what they wait
for is forgotten, and what they have in flight is the parent's to count.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def before_fork(self) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork_in_child(self) -> None: ...


_known: WeakSet[Forkable] = WeakSet()
_held: list[Forkable] = []
_forking = threading.Lock()  # one fork at a time: `_held` is of one


def register(balancer: Forkable) -> None:
    _known.add(balancer)


def _before() -> None:
    _forking.acquire()
    _held[:] = list(_known)
    for balancer in _held:
        balancer.before_fork()


def _after_in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()
    _forking.release()


def _after_in_child() -> None:
    while _held:
        _held.pop().after_fork_in_child()
    _forking.release()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
