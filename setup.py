"""The optional step of the build: `STEELYARD_COMPILE=1` compiles the modules every request goes through, with mypyc.

Everything else about the package is in pyproject.toml. Without the variable the package is pure Python and does the
same, only slower: see docs/decisions/0008-compiled-hot-path.md. `make compiled` does it in an environment of its own.
"""

import inspect
import os
from pathlib import Path

from setuptools import setup

# What is compiled, and what stays plain there: numpy arithmetic gains nothing, mypyc cannot do enumerations with an
# __init__, and some modules are off the request path. Paths are under src/steelyard.
COMPILED = ["core", "gateway", "protocols/bodies/openai.py", "protocols/bodies/text.py"]
PLAIN = {
    "core/estimator/first_byte.py",
    "core/estimator/regression.py",
    "core/memory/peak_model.py",
    "core/memory/relative_fit.py",
    "core/memory/request_size.py",  # its state is a message; msgspec cannot read mypyc's annotations of a NamedTuple
    "core/options.py",
    "core/outcome.py",
    "core/outliers/ejection_reason.py",
    "core/plugins.py",
    "core/policies",  # users look at their options and derive their own from them
    "core/reason.py",
    "core/scalers",
    "core/scaling/decider.py",
    "core/scaling/scale_down.py",
    "core/scaling/schedule.py",
    "core/statistics/sliding_windows.py",
    "gateway/__main__.py",
    "gateway/balancer_process/process.py",
    "gateway/shared_balancer/messages.py",  # msgspec's structs
    "gateway/telemetry/access_log.py",
    "gateway/telemetry/choices.py",
    "gateway/telemetry/decision_log.py",
    "gateway/telemetry/log_file.py",
    "gateway/telemetry/observers.py",
    "gateway/telemetry/otel.py",
    "gateway/telemetry/otlp_exporter.py",
    "gateway/worker/acceptor.py",
    "gateway/worker/balancer_link.py",
    "gateway/worker/fleet.py",
    "gateway/worker/fleet_updates.py",
    "gateway/worker/model_sync.py",
    "gateway/worker/overload.py",
    "gateway/worker/passive_health.py",
    "gateway/worker/process.py",
    "gateway/worker/supervised_process.py",
    "gateway/worker/supervisor_channel.py",
    "gateway/worker/tls.py",
    "gateway/worker/worker_report.py",
}


def hot_modules() -> list[str]:
    root = Path("src/steelyard")
    found = [
        path for room in COMPILED for path in ([root / room] if room.endswith(".py") else (root / room).rglob("*.py"))
    ]
    return sorted(str(path) for path in found if path.stem != "__init__" and not _is_plain(path.relative_to(root)))


def _is_plain(path: Path) -> bool:
    return any(str(part) in PLAIN for part in (path, *path.parents))


class LenientSignature(inspect.Signature):
    """mypyc (2.4) takes its own hidden argument for a positional one, and then finds the real ones out of order."""

    def __init__(self, parameters=None, *, return_annotation=inspect.Signature.empty, __validate_parameters__=True):
        super().__init__(parameters, return_annotation=return_annotation, __validate_parameters__=False)


def compiled() -> list:
    from mypyc.build import mypycify

    inspect.Signature = LenientSignature
    return mypycify(hot_modules(), opt_level="3")


setup(ext_modules=compiled() if os.environ.get("STEELYARD_COMPILE") == "1" else [])
