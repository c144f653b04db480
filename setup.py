"""The step of the build that is not in pyproject.toml: the modules every request goes through are compiled with mypyc.

tools/build_backend.py says when. The pure form does the same, only slower: see docs/decisions/0008-compiled-hot-path.md
and 0034. `make compiled` compiles in an environment of its own.
"""

import inspect
import os
import sys
from pathlib import Path
from textwrap import shorten

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

sys.path.insert(0, "tools")
from build_backend import VARIABLE, find_obstacle, is_compiling

# What is compiled, and what stays plain there: numpy arithmetic gains nothing, mypyc cannot do enumerations with an
# __init__, and some modules are off the request path. Paths are under src/steelyard.
COMPILED = [
    *("core", "gateway"),
    *("protocols/bodies/openai.py", "protocols/bodies/prompts.py", "protocols/bodies/text.py"),
    "protocols/bodies/usage.py",
]
PLAIN = {
    "core/errors.py",  # model servers import it with the agent, and nothing else of this
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
    flags = ["--config-file", "tools/mypyc.ini", "--cache-dir", "build/.mypy_cache"]
    extensions = mypycify(flags + hot_modules(), opt_level="3", debug_level="0", group_name="steelyard")
    for extension in extensions:  # a compiler newer than ours may warn of more
        extension.extra_compile_args = [flag for flag in extension.extra_compile_args if flag != "-Werror"]
    return extensions


def compiled_if_possible() -> list:
    """Asked for each step of a build, so only where the step needs them: it takes a while."""
    if "editable_wheel" in sys.argv and os.environ.get(VARIABLE) == "1":
        sys.exit(f"error: {VARIABLE}=1, but an editable install runs the source and is never compiled: unset it")
    if not {"bdist_wheel", "build", "build_ext", "install"}.intersection(sys.argv):
        return []
    if not is_compiling():
        _tell_pure(find_obstacle())
        return []
    try:
        return compiled()
    except (Exception, SystemExit) as problem:  # mypyc exits
        _give_up(problem)
        return []


class PureIfNotCompiled(build_ext):
    def run(self) -> None:
        try:
            super().run()
        except Exception as problem:
            _give_up(problem)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = self.distribution.ext_modules = []


class TaggedByWhatIsInIt(bdist_wheel):
    def run(self) -> None:
        """Compiles first: the tag depends on whether that worked."""
        self.run_command("build_ext")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


def _give_up(problem: BaseException) -> None:
    what = f"compiling failed: {shorten(str(problem) or type(problem).__name__, 200)}"
    if os.environ.get(VARIABLE) == "1":
        sys.exit(f"error: {VARIABLE}=1, but {what}")
    _tell_pure(what)


def _tell_pure(why: str) -> None:
    if why and os.environ.get(VARIABLE) != "0":
        print(f"warning: steelyard is built as pure Python, which is slower: {why}", file=sys.stderr)


setup(
    ext_modules=compiled_if_possible(),
    cmdclass={"build_ext": PureIfNotCompiled, "bdist_wheel": TaggedByWhatIsInIt},
)
