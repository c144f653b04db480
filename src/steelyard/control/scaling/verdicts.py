"""Verdicts of core.scaling, said."""

from __future__ import annotations


def describe_change(before: int, after: int, why: str) -> str:
    """In the words of a verdict, which begin with a change of its own: from what is there just now."""
    return f"{before} → {after}: {why.partition(': ')[2]}"
