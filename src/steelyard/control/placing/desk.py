"""Where a server is asked to load and to unload one of its models, and what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ...protocols.health import Question
from ...protocols.repository import Entry, Repository, Said
from ..probing.answer import Reply
from ..probing.errors import NonsenseError, SilentError
from ..probing.round import named, shown
from ..probing.target import Target
from ..probing.tls import Contexts
from ..probing.way import Way

LIMIT = 4 << 20  # bytes of an answer: an index of many thousand models
INDEX = 5.0  # seconds for an index
UNLOAD = 60.0  # seconds for the answer to an unload: MLServer answers when it is done
FIRST, LONGEST = 0.02, 0.5  # seconds between two looks at an index that is waited for


class Desk:
    """For one model at one server. Whatever goes wrong on the way is an AskError."""

    def __init__(self, target: Target, repository: Repository, contexts: Contexts) -> None:
        self.model = target.model
        self.repository = repository
        self._way = Way(target, contexts)
        self._headers = {"content-type": "application/json", **target.health.headers}

    @property
    def kind(self) -> str:
        return self.repository.name

    async def index(self) -> dict[str, Entry]:
        question = self.repository.index()
        reply = await self._put(question, INDEX)
        found = self.repository.read_index(reply.status, reply.body)
        if found is None:
            asked = named(question.method, question.path)
            raise NonsenseError(f"answers {reply.status} to {asked}, and that is no list of its models")
        return found

    async def load(self, timeout: float) -> Said:
        reply = await self._put(self.repository.load(self.model), timeout)
        return _fit(self.repository.loaded(reply.status, reply.body))

    async def unload(self) -> Said:
        reply = await self._put(self.repository.unload(self.model), UNLOAD)
        return _fit(self.repository.unloaded(reply.status, reply.body))

    async def until(self, done: Callable[[Entry], bool], otherwise: Entry) -> Entry:
        """What the index says of the model, when `done` is content with it. `otherwise`: it says nothing.

        As long as it takes: who calls has a limit. A server that loads may be too busy to answer for a while.
        """
        pause = FIRST
        while True:
            with suppress(SilentError):
                entry = (await self.index()).get(self.model, otherwise)
                if done(entry):
                    return entry._replace(reason=shown(entry.reason))
            await asyncio.sleep(pause)
            pause = min(LONGEST, 2 * pause)

    async def _put(self, question: Question, timeout: float) -> Reply:
        headers = self._headers if question.body else {k: v for k, v in self._headers.items() if k != "content-type"}
        request = self._way.compose(question.method, question.path, headers, question.body)
        return await self._way.ask(request, timeout=timeout, limit=LIMIT)


def _fit(said: Said) -> Said:
    """What a server says, fit to be shown."""
    return said._replace(reason=shown(said.reason))
