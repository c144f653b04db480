"""The table of dialects. A new one is one file and one line here; tests/protocols finds it."""

from __future__ import annotations

from functools import cache

from ..core.errors import OptionError
from ..core.plugins import find_class
from .base import ApiCall, BodyInfo, Dialect, LocalReply, ServedModel
from .health import ProbePlan, ServerReadiness, ServerRequest, readiness_by_status
from .load import EngineLoad, MetricsLocation, read_metrics, read_orca

# Asked in this order whether a path is theirs; the last takes everything.
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
# Of one server, not of a family: no path tells them, so only the configuration selects them.
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
    "ProbePlan",
    "ServedModel",
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
    """By a name of the table, or `package.module:Class`."""
    methods = ("call", "read_body", "error")
    return find_class("dialect", name, DIALECTS, Dialect, "steelyard.protocols.Dialect", methods)


@cache
def make_dialect(name: str) -> Dialect:
    """One of each: dialects keep no state."""
    return find_dialect(name)()


def classify_call(method: str, path: str) -> tuple[Dialect, ApiCall]:
    """The dialect of a request and its call. `path` has no query. Pure: the result can be cached."""
    for name in DIALECTS:
        if name in SERVER_DIALECTS:
            continue
        dialect = make_dialect(name)
        call = dialect.call(method, path)
        if call is not None:
            return dialect, call
    raise OptionError(f"no dialect of the table takes {method} {path}; the last should take everything")
