"""The API reference of the library is what the code says."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

import steelyard
from steelyard import EventKind, LoadBalancer, Outcome, ReplicaStats, Stats

from .test_docs import rows, section, text_of

PAGE = "docs/library.md"
REFERENCE = "### LoadBalancer"


def signature(method: Any) -> dict[str, Any]:
    return {name: p.default for name, p in inspect.signature(method).parameters.items() if name != "self"}


def table(header: str) -> dict[str, list[str]]:
    """The rows of the table of the reference whose first heading is this, by their first cell."""
    found: dict[str, list[str]] = {}
    here = False
    for first, *rest in rows(section(PAGE, REFERENCE)):
        if not first.startswith("`"):
            here = first == header
        elif here:
            found[first] = rest
    return found


def test_every_argument_of_the_balancer_is_explained_with_its_default() -> None:
    documented = {name.strip("`"): row[0].strip("`") for name, row in table("argument").items()}
    assert documented == {
        name: "required"
        if default is inspect.Parameter.empty
        else "time.monotonic"
        if name == "clock"
        else repr(default)
        for name, default in signature(LoadBalancer).items()
    }


def test_every_argument_of_a_request_is_explained_with_its_default() -> None:
    documented = {name.strip("`"): row[0].strip("`") for name, row in table("argument of a request").items()}
    assert documented == {name: repr(default) for name, default in signature(LoadBalancer.call).items() if name != "fn"}


def test_every_method_is_there_with_its_arguments() -> None:
    documented = dict(re.findall(r"`(\w+)(\([^`]*\))?`", "\n".join(table("method"))))
    # `new_request` is for integrations.
    public = {name for name in vars(LoadBalancer) if not name.startswith("_")} - {"new_request"}
    assert documented.keys() == public
    for name, arguments in documented.items():
        method = getattr(LoadBalancer, name)
        if arguments:
            assert re.findall(r"\w+", arguments) == list(signature(method)), name


def test_the_other_names_are_there() -> None:
    text = section(PAGE, "### The other names")
    assert set(re.findall(r"`([A-Z_]+)`", text)) >= {outcome.name for outcome in Outcome}
    for kind in (Stats, ReplicaStats):
        (row,) = [row for row in rows(text) if row[0] == f"`{kind.__name__}`"]
        assert re.findall(r"`(\w+)`", row[1]) == [f.name for f in fields(kind)] + ["None"] * (kind is ReplicaStats)
    for name in re.findall(r"`(\w+)`", "\n".join(row[0] for row in rows(text))):
        assert hasattr(steelyard, name), name


@pytest.mark.parametrize("kind", EventKind)
def test_every_event_is_explained(kind: EventKind) -> None:
    assert f"`{kind.value}`" in section(PAGE, "## Events and numbers")


def test_the_readme_leads_there() -> None:
    assert "(docs/library.md)" in text_of("README.md")
