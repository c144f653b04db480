"""The optional step of the build: `STEELYARD_COMPILE=1` compiles the modules every request goes through, with mypyc.

Everything else about the package is in pyproject.toml. Without the variable the package is pure Python and does the
same, only slower: see docs/decisions/0008-compiled-hot-path.md. `make compiled` does it in an environment of its own.
"""

import inspect
import os
from pathlib import Path

from setuptools import setup

# Not here: modules of numpy arithmetic, which gain nothing, and enumerations with an __init__, which mypyc cannot do.
PROTOCOLS = ["openai_body", "text"]
# request_bytes: its state travels as a message, and what mypyc says of a NamedTuple's types is not readable.
CORE_PLAIN = {
    "ejection_reason",
    "first_byte",
    "kinds",
    "leaving",
    "naming",
    "options",
    "outcome",
    "peaks",
    "reason",
    "regression",
    "relative_fit",
    "request_bytes",
    "scaling",
    "schedule",
}
GATEWAY_PLAIN = {  # not on the way of most requests
    "__main__",
    "accepting",
    "access_log",
    "decision_log",
    "fallback_health",
    "fleet",
    "line_file",
    "memory_left",
    "otel",
    "otlp",
    "reports",
    "shortages",
    "spans",
    "tidings",
    "tls",
    "worker",
}


def hot_modules() -> list[str]:
    return [
        *_modules("core", CORE_PLAIN),
        *_modules("gateway", GATEWAY_PLAIN),
        *(f"src/steelyard/protocols/{name}.py" for name in PROTOCOLS),
    ]


def _modules(room: str, plain: set[str]) -> list[str]:
    found = Path(f"src/steelyard/{room}").rglob("*.py")
    # Policies and scalers stay plain: users look at their options and derive their own from them.
    own = {"policies", "scalers"}
    return sorted(str(path) for path in found if path.stem not in plain | {"__init__"} and not own & {*path.parts})


class LenientSignature(inspect.Signature):
    """mypyc (2.4) takes its own hidden argument for a positional one, and then finds the real ones out of order."""

    def __init__(self, parameters=None, *, return_annotation=inspect.Signature.empty, __validate_parameters__=True):
        super().__init__(parameters, return_annotation=return_annotation, __validate_parameters__=False)


def compiled() -> list:
    from mypyc.build import mypycify

    inspect.Signature = LenientSignature
    return mypycify(hot_modules(), opt_level="3")


setup(ext_modules=compiled() if os.environ.get("STEELYARD_COMPILE") == "1" else [])
