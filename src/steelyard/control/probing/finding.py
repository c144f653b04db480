"""What to ask a replica of which it is not said, or not enough to be sure: whatever it answers."""

from __future__ import annotations

from typing import NamedTuple

from ...protocols import make_dialect
from ...protocols.base import ANY
from ...protocols.health import Question, Verdict, by_status, fields
from .dialogue import Dialogue, Judge, converse, of_dialect
from .round import Round
from .seen import Kind, Seen

KIT = Question("/steelyard/ready")  # of steelyard.replica
NO_PATH = Seen(Kind.READY, "answers, but has no readiness path: set health.path")
SAYS_NOT_NOW = frozenset((502, 503, 504))  # it, or a proxy in front of it, means what it says


class Candidate(NamedTuple):
    """Something to ask, and what counts as an answer as long as it is a guess that it is known there."""

    dialogue: Dialogue
    guess: Judge

    @property
    def guessed(self) -> Dialogue:
        return self.dialogue._replace(judge=self.guess)


class Finder:
    """Tries one dialogue after another; what is there is asked from then on, until another server may be there.

    A server may still be putting itself together, so they are tried again where none is there: all of them in each
    look, or, where it counts as ready nevertheless, one.
    """

    def __init__(self, candidates: tuple[Candidate, ...], otherwise: Seen | None = None) -> None:
        """`otherwise` is what is seen where none is there; None: what the last of them shows, which is not ready."""
        self._candidates = candidates
        self._otherwise = otherwise
        self._found: Candidate | None = None
        self._turn: int | None = None  # of the candidate to try next, when all were asked and none was there

    def forget(self) -> None:
        """Another server may be there now."""
        self._found = self._turn = None

    async def look(self, round: Round) -> Seen:
        if self._found is not None:
            seen = await converse(self._found.dialogue, round)
            if seen.kind is not Kind.ABSENT:
                return seen
            self.forget()
        turn, self._turn = self._turn, None  # whoever does not answer this time may be another by the next
        for candidate in self._candidates if turn is None else self._candidates[turn : turn + 1]:
            seen = await converse(candidate.guessed, round)
            if seen.kind is not Kind.ABSENT:
                self._found = candidate
                return seen
        if self._otherwise is not None:
            self._turn = 0 if turn is None else (turn + 1) % len(self._candidates)
        return self._otherwise or seen


def of_anything(model: str, live: Dialogue | None = None) -> Finder:
    """Our kit, or the readiness of a server that many use. Else any answer is taken for ready.

    The path that only one server has, and that it answers in words of its own, comes before those that an application
    of any paths may take for a request. `live`: a dialogue whose liveness question is to be asked in all of them.
    """
    oip = make_dialect("oip")
    health = Dialogue((Question("/health"),), lambda question, status, body: by_status(status))
    known: tuple[Candidate, ...] = (
        Candidate(Dialogue((KIT,), _kit), _kit),
        _server("rayserve", lambda question, status, body: make_dialect("rayserve").judge(question, status, body, ANY)),
        Candidate(health, _candid),
        Candidate(of_dialect("oip", model), lambda q, s, body: _unsaid(s) or oip.judge(q, s, body, model)),
        _server("bentoml", _candid),
        _server("torchserve", _ping),
    )
    if live is not None:
        known = tuple(one._replace(dialogue=_living(one.dialogue, live)) for one in known)
    return Finder(known, NO_PATH)


def of_kit_or(dialogue: Dialogue) -> Finder:
    """A server in Python may have our kit, which knows better than the app when it loads and when it leaves."""
    return Finder((Candidate(dialogue._replace(ready=(KIT,), judge=_kit), _kit), Candidate(dialogue, dialogue.judge)))


def _server(dialect: str, guess: Judge) -> Candidate:
    return Candidate(of_dialect(dialect, ANY), guess)


def _living(dialogue: Dialogue, like: Dialogue) -> Dialogue:
    return dialogue._replace(live=like.live, judge_live=like.judge_live)


def _unsaid(status: int) -> Verdict | None:
    """Of the protocol's statuses, a server that is not ready uses 400, and one without the model 404."""
    return None if 200 <= status < 300 or status in (400, 404, *SAYS_NOT_NOW) else Verdict.ABSENT


def _candid(question: Question, status: int, body: bytes) -> Verdict:
    """Of a path that others may not know, may not tell a stranger, or may take for a request and fail at it."""
    if 200 <= status < 300:
        return Verdict.READY
    return Verdict.LOADING if status in SAYS_NOT_NOW else Verdict.ABSENT


def _kit(question: Question, status: int, body: bytes) -> Verdict:
    """Others may answer any path with something; the kit says who it is."""
    return by_status(status) if "instance" in fields(body) else Verdict.ABSENT


def _ping(question: Question, status: int, body: bytes) -> Verdict:
    """TorchServe tells its health in words; what else answers a ping merely lives."""
    return by_status(status) if isinstance(fields(body).get("status"), str) else Verdict.ABSENT
