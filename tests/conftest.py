"""Hypothesis finds the same examples each time: a red run is red again, a green one stays green."""

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from steelyard.system import package_form

# What starts gateways and model servers, or takes long: for `make test-all`. `make test` runs those marked `smoke`.
FULL = tuple(
    os.path.join("tests", *path.split("/"))
    for path in (
        "browser/",
        "e2e/",
        "faults/",
        "real/",
        "cli/test_demo.py",
        "cli/test_platforms.py",
        "cli/test_serve.py",
        "control/admin/openapi/test_schemathesis.py",
        "control/supervisor/test_reload.py",
        "control/takeover/",
        "docs/test_docs.py::test_a_reader_who_types_everything_in_sees_no_error",
        "docs/test_quick_start.py",
        "simulate/engine/test_engine_theory.py",
    )
)

SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a machine may be so, and it says nothing
settings.register_profile("steady", derandomize=True, database=None, **SLOW)
settings.register_profile("explore", max_examples=1000, **SLOW)  # pytest --hypothesis-profile explore
settings.load_profile("steady")


# What gateways keep of their SLOs goes to a folder of its own: a test never finds what another, or a person, left.
# Those of xdist's workers are in that of the process that started them, which removes it.
_within = os.environ["XDG_STATE_HOME"] if "PYTEST_XDIST_WORKER" in os.environ else None
os.environ.pop("STATE_DIRECTORY", None)  # of systemd: it would come first
os.environ["XDG_STATE_HOME"] = _folder = tempfile.mkdtemp(prefix="steelyard-tests-", dir=_within)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if package_form() == "compiled":  # make test-compiled
        for item in items:
            for mark in item.iter_markers("interpreted"):
                item.add_marker(pytest.mark.skip(reason=mark.args[0]))
    if any(os.path.abspath(arg).startswith(os.path.abspath(folder)) for arg in config.args for folder in FULL):
        return  # somebody named them
    for item in items:
        if item.nodeid.startswith(FULL) and item.get_closest_marker("smoke") is None:
            item.add_marker("full")


def pytest_unconfigure() -> None:
    shutil.rmtree(_folder, ignore_errors=True)
