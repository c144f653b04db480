from __future__ import annotations

from collections.abc import Iterator

import pytest

from .serving import Served, served


@pytest.fixture
def admin() -> Iterator[Served]:
    """On the loopback, without a token."""
    with served() as made:
        yield made
