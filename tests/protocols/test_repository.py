"""How servers are asked to load and to unload, with answers as Triton 2.61 and MLServer 1.7 gave them."""

from __future__ import annotations

import json

import pytest

from steelyard.protocols import ServerRequest
from steelyard.protocols.repository import (
    REPOSITORIES,
    IndexEntry,
    ModelPresence,
    OperationProgress,
    OperationReply,
    RepositoryDialect,
    repository_of,
)

ABSENT, LOADING, READY, UNLOADING = (
    ModelPresence.ABSENT,
    ModelPresence.LOADING,
    ModelPresence.READY,
    ModelPresence.UNLOADING,
)
REPOSITORY, AGENT = REPOSITORIES["repository"], REPOSITORIES["agent"]

TRITON = b"""[{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"Internal: ValueError: no weights"},
{"name":"going","version":"1","state":"UNLOADING"},{"name":"gone","version":"1","state":"UNAVAILABLE","reason":"unloaded"},
{"name":"there","version":"1","state":"READY"},{"name":"never"}]"""
MLSERVER = b'[{"name":"two","state":"UNAVAILABLE","reason":""},{"name":"linear","state":"READY","reason":""}]'
OFFERED = {"state": "ready", "reason": "", "since": 0.1, "in_flight": 0}


def of_agent(*models: object) -> bytes:
    return json.dumps({"instance": "be4e", "models": models}).encode()


def presences(index: dict[str, IndexEntry] | None) -> dict[str, ModelPresence]:
    assert index is not None
    return {model: entry.presence for model, entry in index.items()}


def test_what_is_asked() -> None:
    assert REPOSITORY.index() == ServerRequest("/v2/repository/index", "POST", b"{}")
    assert REPOSITORY.load("a/b c").path == "/v2/repository/models/a%2Fb%20c/load"
    assert REPOSITORY.unload("m") == ServerRequest("/v2/repository/models/m/unload", "POST", b"{}")
    assert AGENT.index() == ServerRequest("/steelyard/models")
    assert AGENT.load("a b").path == "/steelyard/models/a%20b/load?wait=10"
    assert (AGENT.unload("m").method, AGENT.unload("m").path) == ("POST", "/steelyard/models/m/unload?wait=10")


def test_the_index_of_triton() -> None:
    index = REPOSITORY.read_index(200, TRITON)
    assert presences(index) == {"bad": ABSENT, "going": UNLOADING, "gone": ABSENT, "there": READY, "never": ABSENT}
    assert index is not None
    assert index["bad"].reason == "Internal: ValueError: no weights"


def test_the_index_of_mlserver() -> None:
    assert presences(REPOSITORY.read_index(200, MLSERVER)) == {"two": ABSENT, "linear": READY}


@pytest.mark.parametrize(
    ("states", "presence"),
    [
        (["READY", "UNAVAILABLE"], READY),
        (["UNAVAILABLE", "UNLOADING"], UNLOADING),
        (["UNLOADING", "READY"], READY),
        (["LOADING", "UNLOADING"], LOADING),
        (["READY", "LOADING"], READY),
        (["UNAVAILABLE", "UNKNOWN"], ABSENT),
    ],
)
def test_several_versions_are_one_model(states: list[str], presence: ModelPresence) -> None:
    lines = [{"name": "m", "version": str(n), "state": state} for n, state in enumerate(states)]
    assert presences(REPOSITORY.read_index(200, json.dumps(lines).encode())) == {"m": presence}


def test_the_index_of_the_agent() -> None:
    body = of_agent(
        {**OFFERED, "model": "a", "bytes": 1081344},
        {**OFFERED, "model": "b", "state": "unloaded", "reason": "not requested yet", "bytes": None},
        {**OFFERED, "model": "c", "state": "failed", "reason": "its load failed with OSError: no disk"},
        {**OFFERED, "model": "d", "state": "failed", "reason": "its unload failed with OSError: busy", "loaded": True},
        {**OFFERED, "model": "e", "state": "loading"},
        {**OFFERED, "model": "f", "state": "unloading"},
    )
    index = AGENT.read_index(200, body)
    assert presences(index) == {"a": READY, "b": ABSENT, "c": ABSENT, "d": UNLOADING, "e": LOADING, "f": UNLOADING}
    assert index is not None
    assert (index["a"].bytes, index["b"].bytes) == (1081344, None)
    assert index["c"].reason == "its load failed with OSError: no disk"


@pytest.mark.parametrize("repository", REPOSITORIES.values(), ids=REPOSITORIES)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((404, b"[]"), (200, b""), (200, b"nonsense"), (200, b'"text"'), (200, b"[3]"), (200, b'[{"state":"READY"}]')),
        *((200, b'{"models":3}'), (200, b'{"models":[3]}'), (200, b'{"models":[{"model":3}]}'), (200, b"[" * 100_000)),
    ],
)
def test_what_is_no_index(repository: RepositoryDialect, status: int, body: bytes) -> None:
    assert repository.read_index(status, body) is None


def test_what_servers_say_to_a_load() -> None:
    assert REPOSITORY.loaded(200, b"") == OperationReply(OperationProgress.DONE)
    failed = b'{"error":"load failed for model \'bad\': version 1 is at UNAVAILABLE state"}'
    assert REPOSITORY.loaded(400, failed).reason == (
        "answers 400: load failed for model 'bad': version 1 is at UNAVAILABLE state"
    )
    assert REPOSITORY.loaded(500, b"Internal Server Error") == OperationReply(
        OperationProgress.REFUSED, "answers 500"
    )  # MLServer
    assert REPOSITORY.loaded(404, b'{"error":"Model nosuch not found"}').progress is OperationProgress.REFUSED
    assert AGENT.loaded(200, json.dumps(OFFERED).encode()) == OperationReply(OperationProgress.DONE)
    assert AGENT.loaded(202, json.dumps(OFFERED).encode()) == OperationReply(OperationProgress.UNDER_WAY)
    busy = b'{"error":{"code":"unloading","message":"The model \'a\' is being unloaded."}}'
    assert AGENT.loaded(409, busy) == OperationReply(
        OperationProgress.REFUSED, "answers 409: The model 'a' is being unloaded."
    )


def test_what_servers_say_to_an_unload() -> None:
    """Done it is when the index says so."""
    assert REPOSITORY.unloaded(200, b"") == OperationReply(OperationProgress.UNDER_WAY)
    assert REPOSITORY.unloaded(404, b'{"error":"Model linear not found"}') == OperationReply(
        OperationProgress.UNDER_WAY
    )  # MLServer
    refused = REPOSITORY.unloaded(400, b'{"error":"explicit model load / unload is not allowed"}')
    assert refused == OperationReply(
        OperationProgress.REFUSED, "answers 400: explicit model load / unload is not allowed"
    )
    assert AGENT.unloaded(409, b'{"error":{"code":"in_use","message":"busy"}}').progress is OperationProgress.REFUSED


@pytest.mark.parametrize(
    ("through", "dialect", "name"),
    [
        ("", "triton", "repository"),
        ("", "oip", "repository"),
        ("agent", "oip", "agent"),
        ("repository", "http", "repository"),
        ("", "", "agent"),
        ("", "openai", "agent"),
    ],
)
def test_which_way_models_are_loaded(through: str, dialect: str, name: str) -> None:
    assert repository_of(through, dialect).name == name
