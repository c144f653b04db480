"""What one check gives back."""

from __future__ import annotations

from collections.abc import Iterator

from ..documents import Key

Findings = Iterator[tuple[Key, str, str]]  # the key, what is so, what to do
