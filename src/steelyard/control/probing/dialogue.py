"""What a replica is asked in one look, and what its answers add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...protocols import make_dialect
from ...protocols.health import Question, Verdict, by_status
from .answer import Reply
from .errors import AskError, RefusedError
from .round import Round, answered
from .seen import Kind, Seen
from .target import Target

Judge = Callable[[Question, int, bytes], Verdict]
Explain = Callable[[Question, int, bytes], str]
SAYS_NO = 503  # the status of a server that is not ready and knows it


class Dialogue(NamedTuple):
    """Ready, if every question of `ready` is answered with READY. `live` is asked when one was not."""

    ready: tuple[Question, ...]
    judge: Judge
    live: Question | None = None  # None: any answer proves life
    judge_live: Judge | None = None  # None: as the others
    explain: Explain = lambda question, status, body: ""  # what to set, where it is not ready


def given(path: str) -> Dialogue:
    """A path from the configuration: whoever names it means it, so a 404 is no 'wrong server' but 'not ready'."""
    return Dialogue((Question(path),), _good_or_not, explain=_is_it_right)


def of_dialect(name: str, model: str) -> Dialogue:
    dialect = make_dialect(name)
    questions = dialect.questions(model)
    return Dialogue(
        questions.ready,
        lambda question, status, body: dialect.judge(question, status, body, model),
        questions.live,
        explain=lambda question, status, body: dialect.explain(question, status, body, model),
    )


def configured(target: Target) -> Dialogue | None:
    """What to ask this replica; None: that has to be found out."""
    path = target.settings.ready or target.health.path
    if path:
        dialogue = given(path)
    elif target.dialect:
        dialogue = of_dialect(target.dialect, target.model)
    else:
        return None
    if target.health.live:
        dialogue = dialogue._replace(live=Question(target.health.live), judge_live=_good_or_not)
    return dialogue


async def converse(dialogue: Dialogue, round: Round) -> Seen:
    """AskError: somewhere in it there was no answer."""
    seen = Seen(Kind.READY, "nothing is asked")
    asked: list[Question] = []
    for question in dialogue.ready:
        round.explain = dialogue.explain
        seen = await _asked(question, dialogue.judge, round)
        asked.append(question)
        if seen.kind is not Kind.READY:
            break
    if dialogue.live is None or dialogue.live in asked or seen.kind in (Kind.READY, Kind.BROKEN):
        return seen
    return await _alive(dialogue.live, dialogue.judge_live or dialogue.judge, round, seen)


async def _asked(question: Question, judge: Judge, round: Round) -> Seen:
    reply = await round.put(question)
    verdict = judge(question, reply.status, reply.body)
    if verdict is Verdict.ABSENT and question.instead is not None:
        return await _asked(question.instead, judge, round)
    return _seen(verdict, question, reply, round)


async def _alive(live: Question, judge: Judge, round: Round, before: Seen) -> Seen:
    """It is not ready; does it live? A server that does not know this question has answered it all the same."""
    try:
        seen = await _asked(live, judge, round)
    except RefusedError:
        raise
    except AskError:  # it did answer, a moment ago
        return before
    if seen.kind in (Kind.READY, Kind.ABSENT):
        return before
    return Seen(Kind.BROKEN, f"{before.detail}, and {seen.detail}: it does not live", sure=before.sure)


def _seen(verdict: Verdict, question: Question, reply: Reply, round: Round) -> Seen:
    kind = Kind(verdict.value)
    sure = kind is Kind.BROKEN or (kind is Kind.LOADING and reply.status == SAYS_NO)
    why = "" if kind is Kind.READY else round.explained(question, reply.status, reply.body)
    return Seen(kind, answered(question, reply) + why, sure=sure)


def _is_it_right(question: Question, status: int, body: bytes) -> str:
    return "is health.path right?" if by_status(status) is Verdict.ABSENT else ""


def _good_or_not(question: Question, status: int, body: bytes) -> Verdict:
    return Verdict.READY if by_status(status) is Verdict.READY else Verdict.LOADING
