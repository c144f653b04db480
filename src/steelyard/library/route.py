"""`with lb.route() as replica:` and `async with`: the block is the request."""

from __future__ import annotations

from types import TracebackType

from ..core.outcome import Outcome
from .failures import FailureClassifier
from .routed import RoutedRequest
from .target import Target


class Route:
    """Waits for a replica, counts it while the block runs, and learns from how the block ends. Entered once."""

    def __init__(self, routed: RoutedRequest, judge: FailureClassifier) -> None:
        self._routed = routed
        self._judge = judge

    def __enter__(self) -> Target:
        return self._routed.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._routed.end(Outcome.OK if error is None else self._judge(error))

    async def __aenter__(self) -> Target:
        return await self._routed.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._routed.end(Outcome.OK if error is None else self._judge(error))
