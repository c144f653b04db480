"""The documentation site has every page. `make docs` checks its links, its anchors and the API reference."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import util
from types import ModuleType
from typing import Any

import pytest
import yaml

import steelyard

from .test_docs import ROOT, text_of

GENERATED = {"index.md", "api.md", "decisions/index.md"}  # by tools/docs_site.py


def pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for entry in nav if isinstance(nav, list) else nav.values() if isinstance(nav, dict) else ():
        yield from pages(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(pages(yaml.safe_load(text_of("mkdocs.yml"))["nav"]))
    assert len(listed) == len(set(listed))
    assert set(listed) == {page.name for page in ROOT.glob("docs/*.md")} | GENERATED


def test_the_groups_are_those_of_the_readme() -> None:
    groups = [name for entry in yaml.safe_load(text_of("mkdocs.yml"))["nav"][1:] for name in entry]
    assert groups == ["Start", "Run", "Understand", "Reference"]
    text = text_of("README.md")
    assert all(f"| **{group}** |" in text for group in groups)


@pytest.fixture(scope="module")
def api() -> ModuleType:
    spec = util.spec_from_file_location("api_reference", ROOT / "tools" / "api_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_api_reference_has_every_public_name_and_every_interface(api: ModuleType) -> None:
    names = {name for names in api.PUBLIC.values() for name in names}
    assert {f"steelyard.{name}" for name in steelyard.__all__} - names == {"steelyard.POLICIES", "steelyard.Decision"}
    assert {name.rpartition(".")[2] for name in names} >= {
        "Policy",
        "Scaler",
        "Dialect",
        "Source",
        "DiscoverySection",
        "Runtime",
        "RuntimeSection",
        "Transport",
    }


def test_the_check_of_the_api_reference_finds_members_parameters_and_what_is_internal(api: ModuleType) -> None:
    """mkdocstrings leaves out what its options hide, and the strict build does not notice."""
    missing = api.problems("")
    for name in ("LoadBalancer.add_replica", "Outcome.OK", "ReplicaStats.p95", "Policy.choose"):
        assert f"steelyard.{name} is missing" in missing
    assert "steelyard.replica.ReplicaAgent: the parameter gateway is missing" in missing
    assert not any("new_request" in problem for problem in missing)
    page = '<h4 id="steelyard.LoadBalancer.new_request" class="doc">'
    assert "steelyard.LoadBalancer.new_request is internal" in api.problems(page)
