"""What the prompt of a chat costs: the body read without it and with it, and its hashes, by size.

    python -m benchmarks.prompts [--rounds N]

Without compiled code, what a policy makes of the blocks is not in these figures. Hostile bodies are at the end.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from timeit import repeat
from typing import Any

from steelyard.protocols import make_dialect
from steelyard.protocols.base import ApiCall
from steelyard.protocols.bodies.prompts import make_prompt

SIZES = (1_000, 8_000, 32_000, 100_000)
TURNS = 8
HOSTILE = {
    "10 MB of text": '"' + "x" * 10_000_000 + '"',
    "4 MB of quotes, a picture": '[{"type":"text","text":"' + '\\"' * 2_000_000 + '"},{"type":"image_url"}]',
    "100,000 pictures": "[" + ",".join(['{"type":"image_url","image_url":{"url":"a"}}'] * 100_000) + "]",
    "9 MB of brackets": '"' + "[:[" * 3_000_000 + '"',
    "10 MB picture": '[{"type":"image_url","image_url":{"url":"data:image/png;base64,' + "A" * 10_000_000 + '"}}]',
}


def chat(text: str, parts: bool) -> bytes:
    turn = len(text) // TURNS
    contents: list[Any] = [text[at * turn : (at + 1) * turn] for at in range(TURNS)]
    if parts:
        contents = [[{"type": "text", "text": content}] for content in contents]
    messages = [{"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)]
    body = {"model": "m", "messages": messages, "max_tokens": 100, "stream": True}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def microseconds(work: Callable[[], object], rounds: int) -> float:
    return min(repeat(work, number=rounds, repeat=9)) / rounds * 1e6


def measure(name: str, body: bytes, rounds: int) -> None:
    dialect = make_dialect("vllm")
    call = dialect.call("POST", "/v1/chat/completions")
    assert call is not None
    wanted: ApiCall = call._replace(with_prompt=True)
    text = dialect.read_body(wanted, body, {}).prompt
    assert text is not None
    blocks = len(make_prompt(text, "m").blocks)
    before = microseconds(lambda: dialect.read_body(call, body, {}), rounds)
    after = microseconds(lambda: dialect.read_body(wanted, body, {}), rounds)
    hashed = microseconds(lambda: make_prompt(text, "m"), rounds)
    more = after + hashed - before
    print(f"| {name} | {blocks} | {before:.1f} | {after:.1f} | {hashed:.1f} | {more:+.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    prose = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8") * 10
    print("| µs | blocks | body without | body with | hashes | more |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for size in SIZES:
        measure(f"{size:,} bytes", chat(prose[:size], parts=False), rounds)
        measure(f"{size:,} bytes in parts", chat(prose[:size], parts=True), rounds)
    for name, content in HOSTILE.items():
        body = b'{"messages":[{"role":"user","content":' + content.encode() + b"}]}"
        measure(name, body, 1)


if __name__ == "__main__":
    main()
