"""What to ask a replica of which it is not said, or not enough to be sure: whatever it answers."""

from __future__ import annotations

from ...protocols import make_dialect
from ...protocols.health import Question, Verdict, by_status, fields
from .dialogue import Dialogue, converse, of_dialect
from .round import Round
from .seen import Kind, Seen

KIT = Question("/steelyard/ready")  # of steelyard.replica
NO_PATH = Seen(Kind.READY, "answers, but has no readiness path: set health.path")
NOT_FOR_US = frozenset((401, 403))  # asked of somebody who may not ask, it tells nothing


class Finder:
    """Tries one dialogue after another; what is there is asked from then on, until another server may be there.

    A server may still be putting itself together, so they are tried again where none is there: all of them in each
    look, or, where it counts as ready nevertheless, one.
    """

    def __init__(self, candidates: tuple[Dialogue, ...], otherwise: Seen | None = None) -> None:
        """`otherwise` is what is seen where none is there; None: what the last of them shows, which is not ready."""
        self._candidates = candidates
        self._otherwise = otherwise
        self._found: Dialogue | None = None
        self._turn: int | None = None  # of the candidate to try next, when all were asked and none was there

    def forget(self) -> None:
        """Another server may be there now."""
        self._found = self._turn = None

    async def look(self, round: Round) -> Seen:
        if self._found is not None:
            seen = await converse(self._found, round)
            if seen.kind is not Kind.ABSENT:
                return seen
            self.forget()
        turn, self._turn = self._turn, None  # whoever does not answer this time may be another by the next
        for candidate in self._candidates if turn is None else self._candidates[turn : turn + 1]:
            seen = await converse(candidate, round)
            if seen.kind is not Kind.ABSENT:
                self._found = candidate
                return seen
        if self._otherwise is not None:
            self._turn = 0 if turn is None else (turn + 1) % len(self._candidates)
        return self._otherwise or seen._replace(detail=f"{seen.detail}: set health.path")


def of_anything(model: str) -> Finder:
    """Our kit, a server with `/health`, or one of the Open Inference Protocol. Else any answer is taken for ready."""
    oip = make_dialect("oip")
    known = of_dialect("oip", model)._replace(
        judge=lambda question, status, body: _shut(status) or oip.judge(question, status, body, model)
    )
    return Finder((Dialogue((KIT,), _kit), Dialogue((Question("/health"),), _candid), known), NO_PATH)


def of_kit_or(dialogue: Dialogue, otherwise: Seen | None = None) -> Finder:
    """A server in Python may have our kit, which knows better than the app when it loads and when it leaves."""
    return Finder((dialogue._replace(ready=(KIT,), judge=_kit), dialogue), otherwise)


def _shut(status: int) -> Verdict | None:
    return Verdict.ABSENT if status in NOT_FOR_US or 300 <= status < 400 else None


def _candid(question: Question, status: int, body: bytes) -> Verdict:
    return _shut(status) or by_status(status)


def _kit(question: Question, status: int, body: bytes) -> Verdict:
    """Others may answer any path with something; the kit says who it is."""
    return by_status(status) if "instance" in fields(body) else Verdict.ABSENT
