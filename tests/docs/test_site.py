"""The documentation site has every page. `make docs` checks its links and anchors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

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
