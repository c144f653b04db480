from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import chrome

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They are slow, and need a browser: `make test-browser` runs them."""
    reason = chrome.missing()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("browser"))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def _chrome() -> Iterator[chrome.Browser]:
    with chrome.chrome() as browser:
        yield browser


@pytest.fixture
def browser(_chrome: chrome.Browser) -> Iterator[chrome.Browser]:
    """As a person opens it for the first time."""
    _chrome.size(1400, 1000)
    _chrome.prefer("light")
    yield _chrome
    _chrome.run("sessionStorage.clear(); localStorage.clear()")
    _chrome.open("about:blank")
