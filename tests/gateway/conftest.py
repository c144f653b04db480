from collections.abc import Callable, Iterator
from typing import Any

import pytest

from steelyard.config import Config

from .stage import Stage


@pytest.fixture
def staged() -> Iterator[Callable[..., Stage]]:
    """Makes stages, and takes them down."""
    made: list[Stage] = []

    def make(config: str | Config = ONE, **how: Any) -> Stage:
        made.append(Stage(config, **how))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(staged: Callable[..., Stage]) -> Stage:
    """One model that takes every name, on one replica."""
    return staged()


ONE = """
models:
  '*':
    replicas: [{url: 'http://a:1'}]
"""
