"""What a replica is asked in one look, and what its answers add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...protocols import make_dialect
from ...protocols.health import ServerReadiness, ServerRequest, readiness_by_status
from .answer import ProbeResponse
from .errors import ConnectRefusedError, ReplicaRequestError
from .round import ProbeRun, describe_response
from .seen import ProbeResult, ProbeStatus
from .target import ProbeTarget

ResponseClassifier = Callable[[ServerRequest, int, bytes], ServerReadiness]
ResponseHint = Callable[[ServerRequest, int, bytes], str]
NOT_READY_STATUS = 503  # the status of a server that is not ready and knows it


class ProbeSequence(NamedTuple):
    """Ready, if every question of `ready` is answered with READY. `live` is asked when one was not."""

    ready: tuple[ServerRequest, ...]
    classify: ResponseClassifier
    live: ServerRequest | None = None  # None: any answer proves life
    judge_live: ResponseClassifier | None = None  # None: as the others
    explain: ResponseHint = lambda question, status, body: ""  # what to set, where it is not ready


def sequence_for_path(path: str) -> ProbeSequence:
    """A path from the configuration: whoever names it means it, so a 404 is no 'wrong server' but 'not ready'."""
    return ProbeSequence((ServerRequest(path),), _ready_or_loading, explain=_path_hint)


def sequence_for_dialect(name: str, model: str) -> ProbeSequence:
    dialect = make_dialect(name)
    questions = dialect.probe_plan(model)
    return ProbeSequence(
        questions.ready,
        lambda question, status, body: dialect.readiness(question, status, body, model),
        questions.live,
        explain=lambda question, status, body: dialect.explain(question, status, body, model),
    )


def configured_sequence(target: ProbeTarget) -> ProbeSequence | None:
    """What to ask this replica; None: that has to be found out."""
    path = target.settings.ready or target.health.path
    if path:
        dialogue = sequence_for_path(path)
    elif target.dialect:
        dialogue = sequence_for_dialect(target.dialect, target.model)
    else:
        return None
    if target.health.live:
        dialogue = dialogue._replace(live=ServerRequest(target.health.live), judge_live=_ready_or_loading)
    return dialogue


async def run_sequence(dialogue: ProbeSequence, round: ProbeRun) -> ProbeResult:
    """AskError: somewhere in it there was no answer."""
    seen = ProbeResult(ProbeStatus.READY, "nothing is asked")
    asked: list[ServerRequest] = []
    for question in dialogue.ready:
        round.explain = dialogue.explain
        seen = await _send_and_classify(question, dialogue.classify, round)
        asked.append(question)
        if seen.status is not ProbeStatus.READY:
            break
    if dialogue.live is None or dialogue.live in asked or seen.status in (ProbeStatus.READY, ProbeStatus.BROKEN):
        return seen
    return await _check_liveness(dialogue.live, dialogue.judge_live or dialogue.classify, round, seen)


async def _send_and_classify(question: ServerRequest, judge: ResponseClassifier, round: ProbeRun) -> ProbeResult:
    reply = await round.send(question)
    verdict = judge(question, reply.status, reply.body)
    if verdict is ServerReadiness.ABSENT and question.fallback is not None:
        return await _send_and_classify(question.fallback, judge, round)
    return _result(verdict, question, reply, round)


async def _check_liveness(
    live: ServerRequest, judge: ResponseClassifier, round: ProbeRun, before: ProbeResult
) -> ProbeResult:
    """It is not ready; does it live? A server that does not know this question has answered it all the same."""
    try:
        seen = await _send_and_classify(live, judge, round)
    except ConnectRefusedError:
        raise
    except ReplicaRequestError:  # it did answer, a moment ago
        return before
    if seen.status in (ProbeStatus.READY, ProbeStatus.ABSENT):
        return before
    return ProbeResult(
        ProbeStatus.BROKEN, f"{before.detail}, and {seen.detail}: it does not live", definitive=before.definitive
    )


def _result(verdict: ServerReadiness, question: ServerRequest, reply: ProbeResponse, round: ProbeRun) -> ProbeResult:
    kind = ProbeStatus(verdict.value)
    sure = kind is ProbeStatus.BROKEN or (kind is ProbeStatus.LOADING and reply.status == NOT_READY_STATUS)
    why = "" if kind is ProbeStatus.READY else round.explained(question, reply.status, reply.body)
    return ProbeResult(kind, describe_response(question, reply) + why, definitive=sure)


def _path_hint(question: ServerRequest, status: int, body: bytes) -> str:
    return "is health.path right?" if readiness_by_status(status) is ServerReadiness.ABSENT else ""


def _ready_or_loading(question: ServerRequest, status: int, body: bytes) -> ServerReadiness:
    return ServerReadiness.READY if readiness_by_status(status) is ServerReadiness.READY else ServerReadiness.LOADING
