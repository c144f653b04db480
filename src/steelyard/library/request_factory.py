"""Requests made of what the caller says of them, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.errors import OptionError
from ..core.request import INFINITY, Request
from . import arguments


class RequestFactory:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._width = 0  # how many features a request has; 0: not known yet

    def new(
        self,
        features: Sequence[float],
        kind: str,
        key: str | None,
        tenant: str,
        priority: int,
        timeout: float | None,
    ) -> Request:
        """Not idempotent: where the caller runs the request, the core must not start a second attempt by itself."""
        numbers = arguments.feature_numbers(features)
        arguments.integer("priority", priority)
        arguments.strings(kind=kind, tenant=tenant, key=key or "")
        deadline = INFINITY if timeout is None else self._clock() + arguments.seconds("timeout", timeout)
        self._check_width(len(numbers))
        return Request(
            "", numbers, deadline=deadline, priority=priority, tenant=tenant, kind=kind, key=key, idempotent=False
        )

    def _check_width(self, width: int) -> None:
        """A request without features is one of unknown size; any others have as many as the first."""
        if self._width and width not in (0, self._width):
            raise OptionError(
                f"features: {width} given, and earlier requests had {self._width}; "
                "give the same numbers in the same order each time"
            )
        self._width = self._width or width
