"""One look at one replica over HTTP."""

from __future__ import annotations

from ...addresses import replica_address
from ...protocols import BY_NAME
from .dialogue import Dialogue, configured, converse
from .errors import AskError, CannotAskError, NonsenseError, RefusedError, SilentError
from .finding import Finder, of_anything, of_kit_or
from .round import Line, Round, named
from .seen import MISCONFIGURED, Kind, Seen
from .target import Target
from .tls import Contexts

GENERIC = ("openai", "http")  # what servers of all kinds speak: whether they have a readiness path is not known

KINDS: dict[type[AskError], Kind] = {
    RefusedError: Kind.REFUSED,
    NonsenseError: Kind.BROKEN,
    CannotAskError: Kind.UNKNOWN,
}  # whatever else keeps an answer from coming is silence


class HttpProbe:
    """Asks what the configuration says, else what the dialect says, else what the replica turns out to answer."""

    def __init__(self, target: Target, contexts: Contexts) -> None:
        self._line = Line(target, contexts)
        self._plan = _plan(target)
        self._dialect = target.dialect
        self._own_port = replica_address(target.settings.url).port

    def forget(self) -> None:
        """Another server may be there now."""
        if isinstance(self._plan, Finder):
            self._plan.forget()

    async def look(self) -> Seen:
        round = Round(self._line)
        try:
            if isinstance(self._plan, Finder):
                seen = await self._plan.look(round)
            else:
                seen = await converse(self._plan, round)
        except AskError as problem:
            seen = Seen(KINDS.get(type(problem), Kind.SILENT), self._words(problem, round))
        if seen.kind is Kind.ABSENT:
            wrong = f"so it is no {self._dialect} server: set its dialect, or health.path"
            seen = seen._replace(detail=f"{MISCONFIGURED}: {seen.detail}, {wrong}")
        return seen._replace(instance=round.instance, seconds=round.seconds)

    def _words(self, problem: AskError, round: Round) -> str:
        if round.question is None:
            return str(problem)
        if isinstance(problem, RefusedError):
            port = self._line.composed(round.question)[0].address.port
            elsewhere = f" on port {port}" if round.question.port and port != self._own_port else ""
            return f"{problem}{elsewhere}{round.explained(round.question, 0, b'') if elsewhere else ''}"
        limit = f" ({self._line.timeout:g} s)" if isinstance(problem, SilentError) else ""
        return f"{problem}{limit}: {named(round.question.method, round.question.path)}"


def _plan(target: Target) -> Dialogue | Finder:
    dialogue = configured(target)
    if dialogue is None:
        return of_anything(target.model)
    if target.settings.ready or target.health.path or target.dialect in BY_NAME:
        return dialogue
    if target.dialect in GENERIC:
        return of_anything(target.model, dialogue if target.health.live else None)
    return of_kit_or(dialogue)
