"""What to ask a replica of which it is not said, or not enough to be sure: whatever it answers."""

from __future__ import annotations

from typing import NamedTuple

from ...protocols import make_dialect
from ...protocols.base import ANY_MODEL
from ...protocols.health import ServerReadiness, ServerRequest, json_object, readiness_by_status
from .probe import ProbeResult, ProbeStatus
from .probe_sequence import ProbeRun, ProbeSequence, ResponseClassifier, run_sequence, sequence_for_dialect

AGENT_READY = ServerRequest("/steelyard/ready")  # of steelyard.replica
READY_WITHOUT_PATH = ProbeResult(ProbeStatus.READY, "answers, but has no readiness path: set health.path")
UNAVAILABLE_STATUSES = frozenset((502, 503, 504))  # it, or a proxy in front of it, means what it says


class DetectionCandidate(NamedTuple):
    """Something to ask, and what counts as an answer as long as it is a guess that it is known there."""

    dialogue: ProbeSequence
    guess: ResponseClassifier

    @property
    def guessed(self) -> ProbeSequence:
        return self.dialogue._replace(classify=self.guess)


class ServerDetector:
    """Tries one dialogue after another; what is there is asked from then on, until another server may be there.

    A server may still be putting itself together, so they are tried again where none is there: all of them in each
    look, or, where it counts as ready nevertheless, one.
    """

    def __init__(self, candidates: tuple[DetectionCandidate, ...], otherwise: ProbeResult | None = None) -> None:
        """`otherwise` is what is seen where none is there; None: what the last of them shows, which is not ready."""
        self._candidates = candidates
        self._otherwise = otherwise
        self._found: DetectionCandidate | None = None
        self._turn: int | None = None  # of the candidate to try next, when all were asked and none was there

    def reset(self) -> None:
        """Another server may be there now."""
        self._found = self._turn = None

    async def run(self, round: ProbeRun) -> ProbeResult:
        if self._found is not None:
            seen = await run_sequence(self._found.dialogue, round)
            if seen.status is not ProbeStatus.ABSENT:
                return seen
            self.reset()
        turn, self._turn = self._turn, None  # whoever does not answer this time may be another by the next
        for candidate in self._candidates if turn is None else self._candidates[turn : turn + 1]:
            seen = await run_sequence(candidate.guessed, round)
            if seen.status is not ProbeStatus.ABSENT:
                self._found = candidate
                return seen
        if self._otherwise is not None:
            self._turn = 0 if turn is None else (turn + 1) % len(self._candidates)
        return self._otherwise or seen


def detect_any_server(model: str, live: ProbeSequence | None = None) -> ServerDetector:
    """Our kit, or the readiness of a server that many use. Else any answer is taken for ready.

    The path that only one server has, and that it answers in words of its own, comes before those that an application
    of any paths may take for a request. `live`: a dialogue whose liveness question is to be asked in all of them.
    """
    oip = make_dialect("oip")
    health = ProbeSequence((ServerRequest("/health"),), lambda question, status, body: readiness_by_status(status))
    known: tuple[DetectionCandidate, ...] = (
        DetectionCandidate(ProbeSequence((AGENT_READY,), _classify_agent), _classify_agent),
        _dialect_candidate(
            "rayserve",
            lambda question, status, body: make_dialect("rayserve").readiness(question, status, body, ANY_MODEL),
        ),
        DetectionCandidate(health, _classify_guessed_path),
        DetectionCandidate(
            sequence_for_dialect("oip", model),
            lambda q, s, body: _not_oip_status(s) or oip.readiness(q, s, body, model),
        ),
        _dialect_candidate("bentoml", _classify_guessed_path),
        _dialect_candidate("torchserve", _classify_torchserve),
    )
    if live is not None:
        known = tuple(one._replace(dialogue=_with_liveness(one.dialogue, live)) for one in known)
    return ServerDetector(known, READY_WITHOUT_PATH)


def detect_agent_or(dialogue: ProbeSequence) -> ServerDetector:
    """A server in Python may have our kit, which knows better than the app when it loads and when it leaves."""
    return ServerDetector(
        (
            DetectionCandidate(dialogue._replace(ready=(AGENT_READY,), classify=_classify_agent), _classify_agent),
            DetectionCandidate(dialogue, dialogue.classify),
        )
    )


def _dialect_candidate(dialect: str, guess: ResponseClassifier) -> DetectionCandidate:
    return DetectionCandidate(sequence_for_dialect(dialect, ANY_MODEL), guess)


def _with_liveness(dialogue: ProbeSequence, like: ProbeSequence) -> ProbeSequence:
    return dialogue._replace(live=like.live, judge_live=like.judge_live)


def _not_oip_status(status: int) -> ServerReadiness | None:
    """Of the protocol's statuses, a server that is not ready uses 400, and one without the model 404."""
    return None if 200 <= status < 300 or status in (400, 404, *UNAVAILABLE_STATUSES) else ServerReadiness.ABSENT


def _classify_guessed_path(question: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    """Of a path that others may not know, may not tell a stranger, or may take for a request and fail at it."""
    if 200 <= status < 300:
        return ServerReadiness.READY
    return ServerReadiness.LOADING if status in UNAVAILABLE_STATUSES else ServerReadiness.ABSENT


def _classify_agent(question: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    """Others may answer any path with something; the kit says who it is."""
    return readiness_by_status(status) if "instance" in json_object(body) else ServerReadiness.ABSENT


def _classify_torchserve(question: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    """TorchServe tells its health in words; what else answers a ping merely lives."""
    return readiness_by_status(status) if isinstance(json_object(body).get("status"), str) else ServerReadiness.ABSENT
