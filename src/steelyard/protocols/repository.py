"""How servers load, unload and list models, and what their answers mean."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final, NamedTuple

import msgspec

from . import find_dialect
from .bodies.text import DECODE_ERRORS
from .dialects.oip import OpenInference
from .health import ServerRequest, escape_name, json_object

AGENT_WAIT_SECONDS = 10  # for the agent to answer a load or unload
ERROR_FIELDS = ("error", "reason", "message", "detail")  # of error bodies


class ModelPresence(Enum):
    ABSENT = "absent"  # not there: never loaded, unloaded, or its load failed
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"  # it still holds its memory


class IndexEntry(NamedTuple):
    presence: ModelPresence
    reason: str = ""
    bytes: int | None = None  # it holds; None: not said


class OperationProgress(Enum):
    DONE = "done"
    UNDER_WAY = "under_way"  # the index tells when it is done
    REFUSED = "refused"


class OperationReply(NamedTuple):
    progress: OperationProgress
    reason: str = ""


class RepositoryDialect:
    """How one family of servers loads and unloads. It keeps no state."""

    name = ""
    models_path = ""
    query = ""
    name_field = ""  # of a line of the index

    def load(self, model: str) -> ServerRequest:
        return ServerRequest(f"{self.models_path}/{escape_name(model)}/load{self.query}", "POST", b"{}")

    def unload(self, model: str) -> ServerRequest:
        return ServerRequest(f"{self.models_path}/{escape_name(model)}/unload{self.query}", "POST", b"{}")

    def index(self) -> ServerRequest:
        raise NotImplementedError

    def index_lines(self, body: bytes) -> Any:
        raise NotImplementedError

    def read_index(self, status: int, body: bytes) -> dict[str, IndexEntry] | None:
        """By model; others are absent. None: this is no index."""
        lines = self.index_lines(body)
        if status != 200 or not isinstance(lines, list):
            return None
        found: dict[str, IndexEntry] = {}
        for line in lines:
            if not isinstance(line, dict) or not isinstance(name := line.get(self.name_field), str):
                return None
            entry = _index_entry(line)  # one for each version
            found[name] = min(found.get(name, entry), entry, key=lambda entry: _RANK.index(entry.presence))
        return found

    def loaded(self, status: int, body: bytes) -> OperationReply:
        if 200 <= status < 300:
            return OperationReply(OperationProgress.UNDER_WAY if status == 202 else OperationProgress.DONE)
        return OperationReply(OperationProgress.REFUSED, _error_sentence(status, body))

    def unloaded(self, status: int, body: bytes) -> OperationReply:
        """The answer to `unload`. The index has the last word."""
        if 200 <= status < 300 or status == 404:  # MLServer's, where the model is not loaded
            return OperationReply(OperationProgress.UNDER_WAY)
        return OperationReply(OperationProgress.REFUSED, _error_sentence(status, body))


class OipRepository(RepositoryDialect):
    """The model repository extension of the Open Inference Protocol: Triton (`--model-control-mode=explicit`) and
    MLServer. They answer a load when it is done; Triton answers an unload at once and does it when no request runs."""

    name = "repository"
    models_path = "/v2/repository/models"
    name_field = "name"

    def index(self) -> ServerRequest:
        return ServerRequest("/v2/repository/index", "POST", b"{}")  # MLServer wants a body

    def index_lines(self, body: bytes) -> Any:
        try:
            return msgspec.json.decode(body)
        except DECODE_ERRORS:
            return None


class AgentRepository(RepositoryDialect):
    """The agent, steelyard.replica. It waits a while for a load or unload, then answers 202."""

    name = "agent"
    models_path = "/steelyard/models"
    query = f"?wait={AGENT_WAIT_SECONDS}"
    name_field = "model"

    def index(self) -> ServerRequest:
        return ServerRequest(self.models_path)

    def index_lines(self, body: bytes) -> Any:
        return json_object(body).get("models")


REPOSITORIES: dict[str, RepositoryDialect] = {kind.name: kind for kind in (OipRepository(), AgentRepository())}

# Absent: all else, such as `unloaded`, `failed`, `UNAVAILABLE`.
_PRESENCES = {one.value: one for one in (ModelPresence.READY, ModelPresence.LOADING, ModelPresence.UNLOADING)}


def repository_of(load_api: str, dialect: str) -> RepositoryDialect:
    """By `placement.load_api`; empty: by the dialect."""
    if not load_api:
        is_open = bool(dialect) and issubclass(find_dialect(dialect), OpenInference)
        load_api = "repository" if is_open else "agent"
    return REPOSITORIES[load_api]


# Of several versions the one that serves counts most; memory is held until all are gone.
_RANK = (ModelPresence.READY, ModelPresence.LOADING, ModelPresence.UNLOADING, ModelPresence.ABSENT)


def _index_entry(line: dict[str, Any]) -> IndexEntry:
    state, reason, size = line.get("state"), line.get("reason"), line.get("bytes")
    presence = _PRESENCES.get(state.lower() if isinstance(state, str) else "", ModelPresence.ABSENT)
    if presence is ModelPresence.ABSENT and line.get("loaded") is True:  # its unload failed
        presence = ModelPresence.UNLOADING
    return IndexEntry(presence, reason if isinstance(reason, str) else "", size if isinstance(size, int) else None)


def _error_sentence(status: int, body: bytes) -> str:
    said = json_object(body)
    if isinstance(inner := said.get("error"), dict):
        said = inner
    words = next((said[name] for name in ERROR_FIELDS if isinstance(said.get(name), str)), "")
    return f"answers {status}: {words}" if words else f"answers {status}"


# Calls that change a model server: its models, its settings, its shared memory.

NO_CONTROL: Final = 0
MODEL_CONTROL: Final = 1  # refused on servers whose models the gateway places
FORBIDDEN_CONTROL: Final = 2  # refused everywhere: the gateway's interface to replicas

READ_METHODS: Final = (b"GET", b"HEAD", b"OPTIONS")
AGENT_MODELS_PATH: Final = "/steelyard/models/"

_PARAMETERS = re.compile(r"/?;[^/]*")  # of a segment; servers in Java ignore them
# Anywhere in the path: a proxy before the server may strip a prefix.
_REPOSITORY = re.compile(r"/v2/repository/(?!index/?$)")  # Triton, MLServer: load and unload
_SETTINGS = re.compile(
    r"/v2/(?:logging|(?:models/.+/)?trace/setting|(?:system|cuda|xpu)sharedmemory/.+)/?$"  # Triton
    r"|/v1/(?:un)?load_lora_adapter/?$"  # vLLM
    r"|/v1/config/reload/?$"  # OpenVINO Model Server
)


def model_control_of(method: bytes, path: str) -> int:
    """`path` is decoded, as the server reads it."""
    path = _PARAMETERS.sub("", path.lower())
    if path.startswith(AGENT_MODELS_PATH):
        return NO_CONTROL if method in READ_METHODS else FORBIDDEN_CONTROL
    if _REPOSITORY.search(path) is not None:
        return MODEL_CONTROL  # for any method: some servers let a header override it
    return MODEL_CONTROL if method not in READ_METHODS and _SETTINGS.search(path) is not None else NO_CONTROL
