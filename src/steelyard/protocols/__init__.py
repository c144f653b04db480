"""The table of dialects. A new one is one file and one line here; the suite in tests/protocols finds it."""

from __future__ import annotations

from functools import cache

from ..core.errors import OptionError
from ..core.plugins import find_class
from .base import ApiCall, BodyInfo, Dialect, LocalReply, ModelView
from .health import ProbePlan, ServerReadiness, ServerRequest, readiness_by_status
from .load import EngineLoad, MetricsLocation, read_metrics, read_orca

# In this order they are asked whether a path is theirs; the last takes everything.
DIALECTS: dict[str, str] = {
    "openai": "steelyard.protocols.dialects.openai:OpenAI",
    "vllm": "steelyard.protocols.dialects.vllm:Vllm",
    "sglang": "steelyard.protocols.dialects.sglang:Sglang",
    "tgi": "steelyard.protocols.dialects.tgi:Tgi",
    "oip": "steelyard.protocols.dialects.oip:OpenInference",
    "triton": "steelyard.protocols.dialects.triton:Triton",
    "torchserve": "steelyard.protocols.dialects.torchserve:TorchServe",
    "rayserve": "steelyard.protocols.dialects.rayserve:RayServe",
    "bentoml": "steelyard.protocols.dialects.bentoml:BentoML",
    "http": "steelyard.protocols.dialects.http:PlainHttp",
}
# Those of one server, not of a family: no path tells them, so they are spoken only where the configuration says so.
SERVER_DIALECTS = frozenset(("vllm", "sglang", "tgi", "triton", "torchserve", "rayserve", "bentoml"))

__all__ = [
    "DIALECTS",
    "SERVER_DIALECTS",
    "ApiCall",
    "BodyInfo",
    "Dialect",
    "EngineLoad",
    "LocalReply",
    "MetricsLocation",
    "ModelView",
    "ProbePlan",
    "ServerReadiness",
    "ServerRequest",
    "classify_call",
    "find_dialect",
    "make_dialect",
    "read_metrics",
    "read_orca",
    "readiness_by_status",
]


def find_dialect(name: str) -> type[Dialect]:
    """The class behind a name of the table, or behind `package.module:Class`."""
    return find_class("dialect", name, DIALECTS, Dialect, "steelyard.protocols.Dialect")


@cache
def make_dialect(name: str) -> Dialect:
    """The dialect of that name. It keeps no state, so there is one of each."""
    return find_dialect(name)()


def classify_call(method: str, path: str) -> tuple[Dialect, ApiCall]:
    """Who claims this request, and what it is. `path` has no query. Pure: the answer can be kept."""
    for name in DIALECTS:
        if name in SERVER_DIALECTS:
            continue
        dialect = make_dialect(name)
        call = dialect.call(method, path)
        if call is not None:
            return dialect, call
    raise OptionError(f"no dialect of the table takes {method} {path}; the last should take everything")
