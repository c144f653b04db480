"""What docs/discovery.md shows of files is understood as it says."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

from steelyard.config import DiscoverySection
from steelyard.control.discovery.file_formats import parse_replicas
from steelyard.control.discovery.hold_down import HoldDown

from .naming import replicas

PAGE = (Path(__file__).parents[3] / "docs/discovery.md").read_text(encoding="utf-8")
BLOCKS = [dedent(block[2]) for block in re.findall(r"^( *)```(\w*)\n(.*?)^\1```", PAGE, re.DOTALL | re.MULTILINE)]


def shown(beginning: str) -> str:
    (block,) = [block for block in BLOCKS if block.startswith(beginning)]
    return block


def test_the_three_forms() -> None:
    ours = parse_replicas(shown("# replicas.yaml"), "replicas.yaml")
    assert [(one.name, one.weight) for one in ours] == [("10.0.0.1:8000", 1), ("10.0.0.2:8000", 1), ("big", 4)]
    named = parse_replicas(shown('{"replicas"'), "replicas.json")
    assert [one.weight for one in named] == [1, 2]
    prometheus = parse_replicas(shown('[\n  {"targets"'), "targets.json")
    assert [(one.url, one.weight, one.zone) for one in prometheus] == [
        ("http://10.0.0.1:8000", 4, "a"),
        ("http://10.0.0.2:8000", 4, "a"),
        ("https://10.0.0.3:8443", 1, ""),
    ]


def test_the_defaults() -> None:
    assert f"| `interval` | {DiscoverySection().interval:.0f}s |" in PAGE
    assert f"| `hold_down` | {DiscoverySection().hold_down:.0f}s |" in PAGE


def test_the_problem_it_shows() -> None:
    hold_down = HoldDown()
    hold_down.poll_succeeded(replicas("a b c d e f g h"), 0, 60)
    hold_down.poll_succeeded(replicas("a b c"), 1, 60)
    assert f'"problem": "{hold_down.problem}"' in PAGE
