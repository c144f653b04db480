"""docs/memory.md names the alarms and refusals as the code does, and has a place for every measurement."""

from __future__ import annotations

import re

from steelyard.control.placement.load_history import PlacementError
from steelyard.core.reason import Reason

from .test_docs import ROOT, rows, section, text_of

PAGE = "docs/memory.md"


def test_every_alarm_about_memory_is_explained() -> None:
    documented = {
        code for row in rows(section(PAGE, "## What is shown where")) for code in re.findall(r"`([a-z_]+)`", row[0])
    }
    control = ROOT / "src/steelyard/control"
    known = set(re.findall(r'"(memory_\w+)"', (control / "memory/views.py").read_text("utf-8")))
    known |= set(re.findall(r'code="(\w+)"', (control / "placement/views.py").read_text("utf-8")))
    known |= {kind.reason for kind in PlacementError.__subclasses__()}
    assert known <= documented, f"not explained: {known - documented}"
    assert {code for code in documented if code.startswith("memory_")} <= known


def test_refusals_are_named_with_their_status() -> None:
    text = section(PAGE, "## When it does not fit")
    for reason in (Reason.TOO_LARGE, Reason.INSUFFICIENT_MEMORY):
        assert f"{reason.status}, `steelyard-reason: {reason.code}`" in text


def test_the_measurements_find_their_place() -> None:
    text = text_of(PAGE)
    for name in ("gpu_memory", "memory", "W10"):
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        assert (text.count(begin), text.count(end)) == (1, 1)
        assert text.index(begin) < text.index(end)
