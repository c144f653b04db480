"""Calls that change a model server: its models, its settings, its shared memory.

Where the gateway loads and unloads models, no client may: it would free or take memory that the ledger counts, and
unload what others use. A server takes these calls from anyone who reaches it. So the gateway refuses them on every
server that a model with `placement` uses, whatever model the request names.
"""

from __future__ import annotations

import re
from typing import Final

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
