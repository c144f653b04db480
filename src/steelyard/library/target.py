"""What `route_request` returns."""

from __future__ import annotations

from collections.abc import Callable

from ..core.request import INFINITY, Request


class Target(str):
    """The id of the replica to use. It is a plain string, and remembers which request it was given for."""

    __slots__ = ("_clock", "request")
    request: Request
    _clock: Callable[[], float]

    def __new__(cls, id: str, request: Request, clock: Callable[[], float]) -> Target:
        target = super().__new__(cls, id)
        target.request = request
        target._clock = clock
        return target

    @property
    def seconds_left(self) -> float | None:
        """Seconds left of the request's `timeout`, to pass on to your client; 0.0: none; None: it has no timeout."""
        deadline = self.request.deadline
        return None if deadline == INFINITY else max(0.0, deadline - self._clock())

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # to another process only the id travels
