"""What the balancer tells its driver to do: gateway/proxy/dispatcher.py, library/engine.py, the simulator, testing.py.

Each driver has its own loop over decisions: they share only the test of the type, which runs for every request.
"""

from __future__ import annotations

from .reason import Reason
from .replica import Replica
from .request import Request


class Decision:
    __slots__ = ("request",)

    def __init__(self, request: Request) -> None:
        self.request = request


class Send(Decision):
    """Send the request to this replica now; its load is already counted."""

    __slots__ = ("hedged", "replica")

    def __init__(self, request: Request, replica: Replica, hedged: bool = False) -> None:
        self.request = request
        self.replica = replica
        self.hedged = hedged

    def __repr__(self) -> str:
        return f"Send({self.request!r}, {self.replica.id!r}{', hedged' if self.hedged else ''})"


class Wait(Decision):
    """Keep the request; a later `finish`, `expire` or fleet change will decide."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Wait({self.request!r})"


class Pending(Decision):
    """Another process decides: its decision comes later, and may be any other of these."""

    __slots__ = ("away",)

    def __init__(self, request: Request, away: bool = False) -> None:
        """`away`: that process is not there now, so it may take a while."""
        super().__init__(request)
        self.away = away

    def __repr__(self) -> str:
        return f"Pending({self.request!r})"


class Reject(Decision):
    """Answer the client with this refusal; the request is done."""

    __slots__ = ("reason", "retry_after", "too_large")

    def __init__(
        self,
        request: Request,
        reason: Reason,
        retry_after: float = 0.0,
        too_large: tuple[int, int, str] | None = None,
    ) -> None:
        self.request = request
        self.reason = reason
        self.retry_after = retry_after  # seconds after which another try has a chance
        self.too_large = too_large  # bytes it needs, the most there is for one, and on which device

    def __repr__(self) -> str:
        return f"Reject({self.request!r}, {self.reason.code}, retry_after={self.retry_after:.3f})"


class Cancel(Decision):
    """Stop the attempt on this replica (the client left, or a hedge lost); its load is already given back."""

    __slots__ = ("replica",)

    def __init__(self, request: Request, replica: Replica) -> None:
        self.request = request
        self.replica = replica

    def __repr__(self) -> str:
        return f"Cancel({self.request!r}, {self.replica.id!r})"
