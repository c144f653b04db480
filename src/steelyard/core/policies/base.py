"""What a policy is. A new one is a class with `choose`, a line in the table of `__init__`, and a run of the suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar

from ..candidates import CandidatesWithout
from ..plugins import number as number
from ..replica import weighted_choice as weighted_choice
from ..request import INFINITY

if TYPE_CHECKING:
    from ..outcome import Outcome
    from ..pool import Pool
    from ..replica import Replica
    from ..request import Attempt, Request


class Policy:
    """Picks one of several replicas that could all take a request now.

    Options are keyword arguments of `__init__`. A policy keeps its notes of a replica in `replica.notes` and only reads
    the rest. It never reads a clock or a global random.
    """

    rule: ClassVar[str] = ""  # what it does, in one line
    wins: ClassVar[str] = ""
    loses: ClassVar[str] = ""
    needs_prompt: ClassVar[bool] = False  # does it read `Request.prompt`? Else drivers need not make one
    # What `steelyard explain` says of a choice.
    score_meaning: ClassVar[str] = "what the policy compares, the least is chosen"
    tie_break: ClassVar[str] = ""  # which of several with the least score is taken; empty: not said
    score_tolerance: ClassVar[float] = 1.0  # scores up to this many times the least count as equal
    exploration_ratio: ClassVar[float] = INFINITY  # a chosen score above this many times the least was an exploration
    chosen_because: ClassVar[str] = ""  # of the one with the least score: "expected to finish it soonest"

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._random = rng.random

    @property
    def prefix_index_blocks(self) -> int:
        """Blocks of prompts that it keeps in mind, for metrics."""
        return 0

    def attach(self, pool: Pool) -> None:
        """Called once, before anything else; most policies do not need it."""

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        """One of `candidates`: at least one, all ready with a free slot, in a stable order, not to be changed."""
        raise NotImplementedError

    def patience(self, request: Request, replica: Replica, ahead: float, now: float) -> float:
        """Seconds worth waiting for a better place than `replica` (the choice); 0.0: go now. `ahead`: the work (seconds
        on a typical replica) of those that wait before this request."""
        return 0.0

    def predict_first_byte(self, request: Request, candidates: Sequence[Replica], now: float) -> float | None:
        """Seconds until its answer would begin, on the best of `candidates`; None: as the estimator says."""
        return None

    def score(self, request: Request, replica: Replica, now: float) -> float | None:
        """What it compares candidates by, the least is chosen; None: nothing. For people: reads only, may be slow."""
        return None

    def joined(self, replica: Replica, now: float) -> None:
        """A replica came into rotation."""

    def left(self, replica: Replica, now: float) -> None:
        """A replica went out of rotation."""

    def reweighted(self, replica: Replica, now: float) -> None:
        """A replica's weight was changed."""

    def restarted(self, replica: Replica, now: float) -> None:
        """A replica is back after it was away: what it had in memory is gone. `joined` follows."""

    def removed(self, replica: Replica, now: float) -> None:
        """A replica was removed for good, in rotation or not; its `notes` are about to be cleared."""

    def sent(self, attempt: Attempt, now: float) -> None:
        """A request was dispatched; load is already counted. `attempt.notes` is the policy's."""

    def first_byte(self, attempt: Attempt, now: float) -> None:
        """The answer began. At most once, and only where the driver tells (`Pool.wants_first_byte`)."""

    def released(self, attempt: Attempt, now: float) -> None:
        """An attempt ended, however it did, and its load was given back. Exactly once for each that was `sent`."""

    def finished(self, attempt: Attempt, seconds: float, outcome: Outcome, now: float) -> None:
        """An attempt ended after `seconds`, and was `released`; a failure counts with at least FAILURE_LATENCY_FACTOR ×
        predicted."""

    def tick(self, members: Sequence[Replica], now: float) -> None:
        """About once a second."""


def random_pair(candidates: Sequence[Replica], random: Callable[[], float]) -> tuple[Replica, Replica]:
    """Two different ones at random, of at least two."""
    count = len(candidates)
    i = int(random() * count)
    j = int(random() * (count - 1))
    return candidates[i], candidates[j if j < i else j + 1]


def left_out(candidates: Sequence[Replica]) -> Sequence[Replica]:
    """Of the open replicas, those that are no candidates (with `Pool.index_of`)."""
    view: object = candidates
    return view.left_out if isinstance(view, CandidatesWithout) else ()


def weighted_load(replica: Replica) -> float:
    """Requests there for its weight. Failures in a row count too: one that fails at once is always idle."""
    return (replica.load + replica.failure_penalty) / replica.effective_weight
