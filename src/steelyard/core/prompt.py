"""A prompt of a text-generating engine, and the tokens that its answer counted.

A driver says what it knows on arrival without a tokenizer: bytes, and hashes of the leading blocks. Two prompts whose
first n hashes are equal begin with the same n × BLOCK_BYTES bytes, for the same model, adapter, tools and cache salt.
"""

from __future__ import annotations

from typing import Final

BLOCK_BYTES: Final = 2048  # of JSON text; some 512 tokens
MAX_BLOCKS: Final = 256


class Prompt:
    __slots__ = ("blocks", "extra_tokens", "text_bytes")

    def __init__(self, text_bytes: int, blocks: tuple[int, ...] = (), extra_tokens: float = 0.0) -> None:
        self.text_bytes = text_bytes  # of all that the engine reads as text
        self.blocks = blocks  # chain hashes of its full leading blocks, at most MAX_BLOCKS
        self.extra_tokens = extra_tokens  # of what is no text: images, audio, ids of tokens


class TokenUsage:
    """As the engine counted them."""

    __slots__ = ("cached", "output", "prompt")

    def __init__(self, prompt: int, output: int, cached: int = 0) -> None:
        self.prompt = prompt
        self.output = output
        self.cached = cached  # of the prompt, found in its prefix cache
