"""How a server is asked to load a model, to unload it, and what it has; and what its answers mean."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from . import find_dialect
from .bodies.text import DECODE_ERRORS
from .dialects.oip import OpenInference
from .health import ServerRequest, escape_name, json_object

AGENT_WAIT_SECONDS = 10  # seconds that a server with our kit may keep a question, until the model is there or gone
ERROR_FIELDS = ("error", "reason", "message", "detail")  # where servers say what is wrong


class ModelPresence(Enum):
    """Of a model on a server."""

    ABSENT = "absent"  # not there: never loaded, unloaded, or its load failed
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"  # it still holds its memory


class IndexEntry(NamedTuple):
    """A line of an index."""

    presence: ModelPresence
    reason: str = ""  # what the server says of it, if it does
    bytes: int | None = None  # what it holds, if the server says so


class OperationProgress(Enum):
    DONE = "done"
    UNDER_WAY = "under_way"  # the index will tell when it is done
    REFUSED = "refused"


class OperationReply(NamedTuple):
    """What a server makes of being asked to load or to unload."""

    progress: OperationProgress
    reason: str = ""


class RepositoryDialect:
    """One way of servers. It keeps no state."""

    name = ""

    def load(self, model: str) -> ServerRequest:
        raise NotImplementedError

    def unload(self, model: str) -> ServerRequest:
        raise NotImplementedError

    def index(self) -> ServerRequest:
        raise NotImplementedError

    def read_index(self, status: int, body: bytes) -> dict[str, IndexEntry] | None:
        """By model; who is not in it is not there. None: this is no index."""
        raise NotImplementedError

    def loaded(self, status: int, body: bytes) -> OperationReply:
        """The answer to `load`."""
        if 200 <= status < 300:
            return OperationReply(OperationProgress.UNDER_WAY if status == 202 else OperationProgress.DONE)
        return OperationReply(OperationProgress.REFUSED, _error_sentence(status, body))

    def unloaded(self, status: int, body: bytes) -> OperationReply:
        """The answer to `unload`. Whatever it says, the index has the last word."""
        if 200 <= status < 300 or status == 404:  # MLServer's, where the model is not loaded
            return OperationReply(OperationProgress.UNDER_WAY)
        return OperationReply(OperationProgress.REFUSED, _error_sentence(status, body))


class OipRepository(RepositoryDialect):
    """The model repository extension of the Open Inference Protocol: Triton, with `--model-control-mode=explicit`, and
    MLServer. A load is answered when it is done; Triton answers an unload at once and does it when no request runs."""

    name = "repository"

    def load(self, model: str) -> ServerRequest:
        return ServerRequest(f"/v2/repository/models/{escape_name(model)}/load", "POST", b"{}")

    def unload(self, model: str) -> ServerRequest:
        return ServerRequest(f"/v2/repository/models/{escape_name(model)}/unload", "POST", b"{}")

    def index(self) -> ServerRequest:
        return ServerRequest("/v2/repository/index", "POST", b"{}")  # MLServer wants a body

    def read_index(self, status: int, body: bytes) -> dict[str, IndexEntry] | None:
        lines = _decoded(body)
        if status != 200 or not isinstance(lines, list):
            return None
        found: dict[str, IndexEntry] = {}
        for line in lines:
            if not isinstance(line, dict) or not isinstance(name := line.get("name"), str):
                return None
            entry = IndexEntry(_presence(line.get("state")), _text(line.get("reason")))
            found[name] = _merge_versions(found[name], entry) if name in found else entry  # one line for each version
        return found


class AgentRepository(RepositoryDialect):
    """The kit, steelyard.replica. It waits a while for what it was asked, and says 202 if it is not done by then."""

    name = "agent"

    def load(self, model: str) -> ServerRequest:
        return ServerRequest(f"/steelyard/models/{escape_name(model)}/load?wait={AGENT_WAIT_SECONDS}", "POST", b"{}")

    def unload(self, model: str) -> ServerRequest:
        return ServerRequest(f"/steelyard/models/{escape_name(model)}/unload?wait={AGENT_WAIT_SECONDS}", "POST", b"{}")

    def index(self) -> ServerRequest:
        return ServerRequest("/steelyard/models")

    def read_index(self, status: int, body: bytes) -> dict[str, IndexEntry] | None:
        lines = json_object(body).get("models")
        if status != 200 or not isinstance(lines, list):
            return None
        found: dict[str, IndexEntry] = {}
        for line in lines:
            if not isinstance(line, dict) or not isinstance(name := line.get("model"), str):
                return None
            presence, size = _presence(line.get("state")), line.get("bytes")
            if presence is ModelPresence.ABSENT and line.get("loaded") is True:  # its unload failed
                presence = ModelPresence.UNLOADING
            found[name] = IndexEntry(presence, _text(line.get("reason")), size if isinstance(size, int) else None)
        return found


REPOSITORIES: dict[str, RepositoryDialect] = {kind.name: kind for kind in (OipRepository(), AgentRepository())}

_PRESENCES = {
    "ready": ModelPresence.READY,
    "loading": ModelPresence.LOADING,
    "unloading": ModelPresence.UNLOADING,
}  # whatever else is said, or nothing: `unloaded`, `failed`, `UNAVAILABLE`


def repository_of(load_api: str, dialect: str) -> RepositoryDialect:
    """What `load_api` names (config.Placement); empty: what servers of the dialect have."""
    if not load_api:
        is_open = bool(dialect) and issubclass(find_dialect(dialect), OpenInference)
        load_api = "repository" if is_open else "agent"
    return REPOSITORIES[load_api]


def _presence(state: Any) -> ModelPresence:
    return _PRESENCES.get(state.lower(), ModelPresence.ABSENT) if isinstance(state, str) else ModelPresence.ABSENT


# Of several versions the one that serves counts most; memory is held as long as any is not gone.
_RANK = (ModelPresence.READY, ModelPresence.LOADING, ModelPresence.UNLOADING, ModelPresence.ABSENT)


def _merge_versions(one: IndexEntry, other: IndexEntry) -> IndexEntry:
    return min(one, other, key=lambda entry: _RANK.index(entry.presence))


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except DECODE_ERRORS:
        return None


def _error_sentence(status: int, body: bytes) -> str:
    said = json_object(body)
    if isinstance(inner := said.get("error"), dict):
        said = inner
    words = next((said[name] for name in ERROR_FIELDS if isinstance(said.get(name), str)), "")
    return f"answers {status}: {words}" if words else f"answers {status}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# Calls that change a model server: its models, its settings, its shared memory.

NO_CONTROL: Final = 0
MODEL_CONTROL: Final = 1  # refused on servers whose models the gateway places
FORBIDDEN_CONTROL: Final = 2  # refused anywhere: the gateway's own interface to replicas

READ_METHODS: Final = (b"GET", b"HEAD", b"OPTIONS")
AGENT_MODELS_PATH: Final = "/steelyard/models/"  # where a server with our kit is asked to load and unload

_PARAMETERS = re.compile(r"/?;[^/]*")  # of a segment; servers in Java match without them
# Not at the beginning only: a proxy before the server may take a prefix off.
_REPOSITORY = re.compile(r"/v2/repository/(?!index/?$)")  # Triton, MLServer: load and unload
_SETTINGS = re.compile(
    r"/v2/(?:logging|(?:models/.+/)?trace/setting|(?:system|cuda|xpu)sharedmemory/.+)/?$"  # Triton
    r"|/v1/(?:un)?load_lora_adapter/?$"  # vLLM
    r"|/v1/config/reload/?$"  # OpenVINO Model Server
)


def model_control_of(method: bytes, path: str) -> int:
    """What a request to this path would change. `path` is decoded: as the server reads it."""
    path = _PARAMETERS.sub("", path.lower())
    if path.startswith(AGENT_MODELS_PATH):
        return NO_CONTROL if method in READ_METHODS else FORBIDDEN_CONTROL
    if _REPOSITORY.search(path) is not None:
        return MODEL_CONTROL  # whatever the method: some servers let a header change it
    return MODEL_CONTROL if method not in READ_METHODS and _SETTINGS.search(path) is not None else NO_CONTROL
