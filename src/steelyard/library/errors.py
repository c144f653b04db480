"""What the library raises when a request is refused."""

from __future__ import annotations

from ..core.errors import SteelyardError
from ..core.reason import Reason


class Refused(SteelyardError):
    """No replica can take the request. `reason` is stable; `retry_after` says in how many seconds to try again."""

    def __init__(self, why: Reason, retry_after: float = 0.0) -> None:
        super().__init__(why.sentence)
        self.why = why
        self.reason = why.code
        self.status = why.status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type[Refused], tuple[Reason, float]]:
        return Refused, (self.why, self.retry_after)
