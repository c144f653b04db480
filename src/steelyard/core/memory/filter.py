"""The candidate filter: which open replicas a request may go to, before the policy chooses among them.

`CandidateFilter` is the interface, and the filter of a model whose memory is not counted: it admits every replica.
`MemoryAdmission` (admission.py) counts. The scheduler calls `exceeds_capacity` when a request arrives, then `filter`,
`reserve` for the policy's choice, `attach` at dispatch, `release` at the end; `note_blocked` where no replica had room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..request import INFINITY

if TYPE_CHECKING:
    from ..replica import Replica
    from ..request import Attempt, Request
    from .request_size import RequestSizeModel, RequestSizeState


class BlockedSizes:
    """Sizes that found no room in one pass over a queue. This one remembers none."""

    __slots__ = ()

    def covers(self, request: Request) -> bool:
        """A request no larger was blocked in this pass: this one need not be placed."""
        return False

    def note(self, request: Request) -> None:
        """This request was not placed."""


NO_BLOCKED_SIZES: Final = BlockedSizes()


class CandidateFilter:
    """One per pool. This one admits everything."""

    unmeasured: bool = False  # no server reports what requests need: they count as nothing

    def exceeds_capacity(self, request: Request, now: float) -> tuple[int, int, str] | None:
        """If it can never fit: the bytes it needs, the most there is for one request, and on which device."""
        return None

    def filter(self, request: Request, candidates: Sequence[Replica], now: float) -> Sequence[Replica]:
        return candidates

    def fits(self, request: Request, replica: Replica, now: float) -> bool:
        return True

    def reserve(self, request: Request, replica: Replica, now: float) -> bool:
        """Reserve what it needs, for the attempt dispatched next. False: no room after all."""
        return True

    def adopt(self, request: Request, replica: Replica, amount: int) -> None:
        """It runs there already, with these bytes reserved by another balancer: they count, whatever room there is."""

    def cancel_reservation(self, request: Request, replica: Replica) -> None:
        """Undo `reserve`: no attempt is dispatched."""

    def attach(self, attempt: Attempt, now: float) -> None:
        """The reservation belongs to this attempt from now on."""

    def release(self, attempt: Attempt, now: float, *, over: bool) -> None:
        """The attempt ended. Not `over`: its server may still run it for a while."""

    def could_retry(self, request: Request, members: Sequence[Replica], failed: Replica, now: float) -> bool:
        """After it ran out of memory on `failed`: could it ever fit on another member?"""
        return True

    def begin_pass(self) -> BlockedSizes:
        return NO_BLOCKED_SIZES

    def note_blocked(self, request: Request, candidates: Sequence[Replica], now: float) -> float:
        """No candidate has room. When to look again at the latest, if no release says so earlier."""
        return INFINITY

    def is_blocked(self, request: Request) -> bool:
        """Did it find no room when last looked at?"""
        return False

    def release_earmark(self, request: Request) -> None:
        """It no longer waits: give up the room that is saved up for it."""

    def add_replica(self, replica: Replica) -> None:
        """A replica joins the pool."""

    def redeclare(self, sizes: RequestSizeModel) -> bool:
        """The configuration declares other sizes. False: memory is not counted here yet."""
        return False

    def load_state(self, footprint: int, state: RequestSizeState, unmeasured: bool) -> None:
        """Take over what was learned elsewhere."""

    def record_measurement(self, request: Request, measured: bool) -> None:
        """An answer came. `measured`: it said what its request needed."""

    def record_out_of_memory(self, attempt: Attempt, now: float) -> tuple[int, int] | None:
        """The attempt ran out of memory: what was reserved for it, and what it must have needed at least."""
        return None

    def record_crash(self, features: tuple[float, ...], kind: str, amount: int) -> int:
        """A server crashed under a request with this reservation: its size from now on; 0: not counted."""
        return 0

    def quarantine(self, device: str, amount: int, until: float) -> None:
        """Keeps requests of at least this size off the device until then."""


NO_FILTER: Final = CandidateFilter()
