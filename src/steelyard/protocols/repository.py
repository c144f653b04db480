"""How a server is asked to load a model, to unload it, and what it has; and what its answers mean."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import msgspec

from . import find_dialect
from .health import Question, escaped, fields
from .oip import OpenInference
from .text import BROKEN

WAIT = 10  # seconds that a server with our kit may keep a question, until the model is there or gone
SENTENCES = ("error", "reason", "message", "detail")  # where servers say what is wrong


class Presence(Enum):
    """Of a model on a server."""

    ABSENT = "absent"  # not there: never loaded, unloaded, or its load failed
    LOADING = "loading"
    READY = "ready"
    UNLOADING = "unloading"  # it still holds its memory


class Entry(NamedTuple):
    """A line of an index."""

    presence: Presence
    reason: str = ""  # what the server says of it, if it does
    bytes: int | None = None  # what it holds, if the server says so


class Progress(Enum):
    DONE = "done"
    UNDER_WAY = "under_way"  # the index will tell when it is done
    REFUSED = "refused"


class Said(NamedTuple):
    """What a server makes of being asked to load or to unload."""

    progress: Progress
    reason: str = ""


class Repository:
    """One way of servers. It keeps no state."""

    name = ""

    def load(self, model: str) -> Question:
        raise NotImplementedError

    def unload(self, model: str) -> Question:
        raise NotImplementedError

    def index(self) -> Question:
        raise NotImplementedError

    def read_index(self, status: int, body: bytes) -> dict[str, Entry] | None:
        """By model; who is not in it is not there. None: this is no index."""
        raise NotImplementedError

    def loaded(self, status: int, body: bytes) -> Said:
        """The answer to `load`."""
        if 200 <= status < 300:
            return Said(Progress.UNDER_WAY if status == 202 else Progress.DONE)
        return Said(Progress.REFUSED, _sentence(status, body))

    def unloaded(self, status: int, body: bytes) -> Said:
        """The answer to `unload`. Whatever it says, the index has the last word."""
        if 200 <= status < 300 or status == 404:  # MLServer's, where the model is not loaded
            return Said(Progress.UNDER_WAY)
        return Said(Progress.REFUSED, _sentence(status, body))


class ModelRepository(Repository):
    """The model repository extension of the Open Inference Protocol: Triton, with `--model-control-mode=explicit`, and
    MLServer. A load is answered when it is done; Triton answers an unload at once and does it when no request runs."""

    name = "repository"

    def load(self, model: str) -> Question:
        return Question(f"/v2/repository/models/{escaped(model)}/load", "POST", b"{}")

    def unload(self, model: str) -> Question:
        return Question(f"/v2/repository/models/{escaped(model)}/unload", "POST", b"{}")

    def index(self) -> Question:
        return Question("/v2/repository/index", "POST", b"{}")  # MLServer wants a body

    def read_index(self, status: int, body: bytes) -> dict[str, Entry] | None:
        lines = _decoded(body)
        if status != 200 or not isinstance(lines, list):
            return None
        found: dict[str, Entry] = {}
        for line in lines:
            if not isinstance(line, dict) or not isinstance(name := line.get("name"), str):
                return None
            entry = Entry(_presence(line.get("state")), _text(line.get("reason")))
            found[name] = _together(found[name], entry) if name in found else entry  # one line for each version
        return found


class KitRepository(Repository):
    """The kit, steelyard.replica. It waits a while for what it was asked, and says 202 if it is not done by then."""

    name = "kit"

    def load(self, model: str) -> Question:
        return Question(f"/steelyard/models/{escaped(model)}/load?wait={WAIT}", "POST", b"{}")

    def unload(self, model: str) -> Question:
        return Question(f"/steelyard/models/{escaped(model)}/unload?wait={WAIT}", "POST", b"{}")

    def index(self) -> Question:
        return Question("/steelyard/models")

    def read_index(self, status: int, body: bytes) -> dict[str, Entry] | None:
        lines = fields(body).get("models")
        if status != 200 or not isinstance(lines, list):
            return None
        found: dict[str, Entry] = {}
        for line in lines:
            if not isinstance(line, dict) or not isinstance(name := line.get("model"), str):
                return None
            presence, size = _presence(line.get("state")), line.get("bytes")
            if presence is Presence.ABSENT and line.get("loaded") is True:  # its unload failed
                presence = Presence.UNLOADING
            found[name] = Entry(presence, _text(line.get("reason")), size if isinstance(size, int) else None)
        return found


REPOSITORIES: dict[str, Repository] = {kind.name: kind for kind in (ModelRepository(), KitRepository())}

_PRESENCES = {
    "ready": Presence.READY,
    "loading": Presence.LOADING,
    "unloading": Presence.UNLOADING,
}  # whatever else is said, or nothing: `unloaded`, `failed`, `UNAVAILABLE`


def repository_of(through: str, dialect: str) -> Repository:
    """What `through` names (config.Placement); empty: what servers of the dialect have."""
    if not through:
        is_open = bool(dialect) and issubclass(find_dialect(dialect), OpenInference)
        through = "repository" if is_open else "kit"
    return REPOSITORIES[through]


def _presence(state: Any) -> Presence:
    return _PRESENCES.get(state.lower(), Presence.ABSENT) if isinstance(state, str) else Presence.ABSENT


# Of several versions the one that serves counts most; memory is held as long as any is not gone.
_RANK = (Presence.READY, Presence.LOADING, Presence.UNLOADING, Presence.ABSENT)


def _together(one: Entry, other: Entry) -> Entry:
    return min(one, other, key=lambda entry: _RANK.index(entry.presence))


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except BROKEN:
        return None


def _sentence(status: int, body: bytes) -> str:
    said = fields(body)
    if isinstance(inner := said.get("error"), dict):
        said = inner
    words = next((said[name] for name in SENTENCES if isinstance(said.get(name), str)), "")
    return f"answers {status}: {words}" if words else f"answers {status}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
