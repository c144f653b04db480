"""What the tests of chat clients share: prompts, the right answers to them, and what a replica saw."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from .processes import Program
from .servers.tiny import TinyWriter

KEY = "sk-anything"
_writer = TinyWriter()


def ask(text: str, **more: Any) -> dict[str, Any]:
    """The arguments of a chat."""
    return {"model": "tiny-chat", "messages": [{"role": "user", "content": text}], **more}


def slow(milliseconds: int, words: int) -> dict[str, Any]:
    """So many words, each taking so long."""
    return {"metadata": {"pace_ms": str(milliseconds)}, "max_tokens": words}


def answer(text: str, words: int = 16) -> str:
    """What the model says to this."""
    return " ".join(_writer.words(text, words))


def seen(replica: Program) -> dict[str, int]:
    """`open`, `served` and `left` (the client went away) of a LitServe replica, asked directly."""
    with urllib.request.urlopen(replica.url + "/seen", timeout=10) as reply:
        counts: dict[str, int] = json.load(reply)
    return counts
