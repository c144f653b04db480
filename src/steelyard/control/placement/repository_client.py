"""The repository API of a server, for one model: load, unload, and the index of what is loaded."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ...protocols.health import ServerRequest
from ...protocols.repository import IndexEntry, ModelPresence, OperationProgress, OperationReply, RepositoryDialect
from ..health.http_client import (
    InvalidResponseError,
    ProbeOrigin,
    ProbeResponse,
    ReplicaRequestError,
    ResponseTimeoutError,
    TlsContexts,
    describe_request,
    printable_line,
)
from ..health.probe import ProbeTarget
from .load_history import UnloadError

MAX_INDEX_BYTES = 4 << 20  # many thousand models
INDEX_TIMEOUT_SECONDS = 5.0
UNLOAD_TIMEOUT_SECONDS = 60.0  # for the response: MLServer answers when it is done
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 0.5  # between polls while waiting for a change
UNLOADED_TIMEOUT_SECONDS = 120.0  # until the index says that it is gone
ABSENT_ENTRY = IndexEntry(ModelPresence.ABSENT)


class RepositoryClient:
    """For one model at one server. Failures are ReplicaRequestErrors."""

    def __init__(self, target: ProbeTarget, repository: RepositoryDialect, contexts: TlsContexts) -> None:
        self.model = target.model
        self.repository = repository
        self._origin = ProbeOrigin(target, contexts)
        self._headers = {"content-type": "application/json", **target.health.headers}

    @property
    def kind(self) -> str:
        return self.repository.name

    async def index(self) -> dict[str, IndexEntry]:
        question = self.repository.index()
        reply = await self._put(question, INDEX_TIMEOUT_SECONDS)
        found = self.repository.read_index(reply.status, reply.body)
        if found is None:
            asked = describe_request(question.method, question.path)
            raise InvalidResponseError(f"answers {reply.status} to {asked}, and that is no list of its models")
        return found

    async def load(self, timeout: float) -> OperationReply:
        reply = await self._put(self.repository.load(self.model), timeout)
        return _printable(self.repository.loaded(reply.status, reply.body))

    async def unload(self) -> OperationReply:
        reply = await self._put(self.repository.unload(self.model), UNLOAD_TIMEOUT_SECONDS)
        return _printable(self.repository.unloaded(reply.status, reply.body))

    async def wait_until(self, *presences: ModelPresence) -> IndexEntry:
        """The model's index entry, once it is one of these; no time limit."""
        pause = FIRST_POLL_SECONDS
        while True:
            with suppress(ResponseTimeoutError):  # a server that loads may be too busy to answer
                entry = (await self.index()).get(self.model, ABSENT_ENTRY)
                if entry.presence in presences:
                    return entry._replace(reason=printable_line(entry.reason))
            await asyncio.sleep(pause)
            pause = min(MAX_POLL_SECONDS, 2 * pause)

    async def _put(self, question: ServerRequest, timeout: float) -> ProbeResponse:
        headers = self._headers if question.body else {k: v for k, v in self._headers.items() if k != "content-type"}
        request = self._origin.build_request(question.method, question.path, headers, question.body)
        return await self._origin.send(request, timeout=timeout, max_bytes=MAX_INDEX_BYTES)


def _printable(said: OperationReply) -> OperationReply:
    return said._replace(reason=printable_line(said.reason))


async def unload_and_wait(repository: RepositoryClient, where: str) -> None:
    """Returns when the index says that it is gone. UnloadError: it is not."""
    try:
        async with asyncio.timeout(UNLOADED_TIMEOUT_SECONDS):
            said = await repository.unload()
            if said.progress is OperationProgress.REFUSED:
                raise UnloadError(f"{where} was not unloaded: {said.reason}")
            await repository.wait_until(ModelPresence.ABSENT)
    except TimeoutError:
        raise UnloadError(f"{where} was not unloaded within {UNLOADED_TIMEOUT_SECONDS:g} s") from None
    except ReplicaRequestError as problem:
        raise UnloadError(f"{where} was not unloaded: {problem}") from None
