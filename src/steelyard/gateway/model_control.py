"""Calls that change a model server: its models, its settings, its shared memory.

Where the gateway loads and unloads models, no client may: it would free or take memory that the ledger counts, and
unload what others use. A server takes these calls from anyone who reaches it. So the gateway refuses them on every
server that a model with `placement` uses, whatever model the request names.
"""

from __future__ import annotations

import re
from typing import Final

NO_CONTROL: Final = 0
CONTROL: Final = 1  # refused on servers whose models the gateway places
NEVER: Final = 2  # refused anywhere: the gateway's own interface to replicas

LOOKS: Final = (b"GET", b"HEAD", b"OPTIONS")
KIT_MODELS: Final = "/steelyard/models/"  # where a server with our kit is asked to load and unload

_PARAMETERS = re.compile(r"/?;[^/]*")  # of a segment; servers in Java match without them
# Not at the beginning only: a proxy before the server may take a prefix off.
_REPOSITORY = re.compile(r"/v2/repository/(?!index/?$)")  # Triton, MLServer: load and unload
_SETTINGS = re.compile(
    r"/v2/(?:logging|(?:models/.+/)?trace/setting|(?:system|cuda|xpu)sharedmemory/.+)/?$"  # Triton
    r"|/v1/(?:un)?load_lora_adapter/?$"  # vLLM
    r"|/v1/config/reload/?$"  # OpenVINO Model Server
)


def control_of(method: bytes, path: str) -> int:
    """What a request to this path would change. `path` is decoded: as the server reads it."""
    path = _PARAMETERS.sub("", path.lower())
    if path.startswith(KIT_MODELS):
        return NO_CONTROL if method in LOOKS else NEVER
    if _REPOSITORY.search(path) is not None:
        return CONTROL  # whatever the method: some servers let a header change it
    return CONTROL if method not in LOOKS and _SETTINGS.search(path) is not None else NO_CONTROL
