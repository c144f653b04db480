"""Prompts: what of a request's body an engine reads, in the order in which it reads it, as hashes of its blocks.

An engine keeps what it computed for the beginning of a prompt, so requests with the same beginning belong together. No
tokenizer runs here: the JSON text of the fields is taken as it is, tools first, then system and instructions, then the
messages or the prompt. h₀ is a hash of the tenant (where caches are kept apart), the model, the adapter and the cache
salt; hᵢ = xxh3_64(block i, seed hᵢ₋₁), over blocks of 2,048 bytes. So equal hashes mean equal beginnings.

Images, sounds and the like are no text: they count as tokens, and of their bytes only a hash stays in the text.

Limits: key order and white space of clients matter, the chat template of the engine is not known (some put tools after
the system message), and prompts by token ids make blocks of fewer tokens.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Raw
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from ...core.prompt import BLOCK_BYTES, MAX_BLOCKS, Prompt
from .schemas import NO_VALUE, decode_prompt_parts

IMAGE_TOKENS: Final = 1024.0  # of a picture of 1024×1024 in most models that see
LOW_DETAIL_TOKENS: Final = 85.0  # OpenAI's, for `"detail": "low"`
AUDIO_TOKENS: Final = 256.0  # 10 s, or what its size says if that is more …
AUDIO_CHARS_PER_TOKEN: Final = 1024.0  # … of base64: 16 kHz, 16 bits, 25 tokens/s make 1,700, compressed less
VIDEO_TOKENS: Final = 4096.0
FILE_TOKENS: Final = 1024.0  # or what its size says if that is more …
FILE_CHARS_PER_TOKEN: Final = 64.0  # … of base64: a PDF
PART_TOKENS: Final[dict[bytes, float]] = {
    b"image_url": IMAGE_TOKENS,
    b"input_image": IMAGE_TOKENS,
    b"image": IMAGE_TOKENS,
    b"image_embeds": IMAGE_TOKENS,
    b"computer_screenshot": IMAGE_TOKENS,
    b"input_audio": AUDIO_TOKENS,
    b"audio_url": AUDIO_TOKENS,
    b"audio": AUDIO_TOKENS,
    b"video_url": VIDEO_TOKENS,
    b"video": VIDEO_TOKENS,
    b"input_file": FILE_TOKENS,
    b"file": FILE_TOKENS,
    b"document": FILE_TOKENS,
}
MEDIA_TYPES: Final = frozenset(name.decode() for name in PART_TOKENS)
PAYLOAD_KEYS: Final = frozenset((b"url", b"data", b"image_url", b"file_data", b"file_url", b"image_embeds"))
CHARS_PER_TOKEN: Final[dict[bytes, float]] = {
    **dict.fromkeys((b"input_audio", b"audio"), AUDIO_CHARS_PER_TOKEN),
    **dict.fromkeys((b"input_file", b"file", b"document"), FILE_CHARS_PER_TOKEN),
}
MAX_PARTS_READ: Final = 1024  # in one list: the loop must stay free
MAX_BRACKETS_READ: Final = 32  # one by one
MAX_NESTING: Final = 3  # of lists of parts: a message, a tool's result, a document in it
MAX_QUOTES_READ: Final = 4096  # in a conversation with media
HASHED_BYTES: Final = MAX_BLOCKS * BLOCK_BYTES
_QUOTE: Final = 34
_BRACKET: Final = 91
_COLON: Final = 58
_SPACE: Final = 32
# A list that is a value, or something like it in a text.
_LIST: Final = re.compile(rb"\[(?:(?<=:\[)|(?<=: \[)|(?<=[\t\r\n]\[))")
_LISTS: Final = (b":[", b": [", b"\t[", b"\r[", b"\n[")  # the same: faster, where there are many brackets
_TOKEN_IDS: Final = re.compile(rb"\[[\s\[]*-?[0-9]")


class PromptText:
    """Fields of a body that an engine reads; `make_prompt` hashes them when it is known who may share its cache."""

    __slots__ = ("adapter", "extra_tokens", "salt", "text_bytes", "texts")

    def __init__(self, adapter: Raw = NO_VALUE, salt: Raw = NO_VALUE) -> None:
        self.texts: list[bytes] = []
        self.text_bytes = 0
        self.extra_tokens = 0.0
        self.adapter = adapter
        self.salt = salt

    @property
    def chars(self) -> float:
        """As the estimator counts: some four a token."""
        return self.text_bytes + 4.0 * self.extra_tokens

    def add(self, field: Raw, times: int = 1) -> None:
        """A text, texts, or ids of tokens. Others, such as a prompt's stored template, are no text."""
        text = bytes(field)
        if not text or (text[0] != _QUOTE and text[0] != _BRACKET):
            return
        self.texts.append(text)
        if text[0] == _BRACKET and _TOKEN_IDS.match(text) is not None:
            self.extra_tokens += text.count(b",") + 1.0
        else:
            self.text_bytes += len(text) * times

    def add_conversation(self, field: Raw) -> None:
        """A text, or messages, items or parts: perhaps with media among them. Raises what decoders do."""
        text = bytes(field)
        if not text or (text[0] != _QUOTE and text[0] != _BRACKET):
            return
        if _may_have_parts(text) and _has_media(field, MAX_NESTING):
            text, tokens = _cut_media(text)
            self.extra_tokens += tokens
        self.texts.append(text)
        self.text_bytes += len(text)

    def add_media(self, field: Raw, tokens: float) -> None:
        """One, or a list of them, beside the text."""
        text = bytes(field)
        if not text or (text[0] != _QUOTE and text[0] != _BRACKET):
            return
        count = 1 if text[0] == _QUOTE else max(1, text.count(b'"') // 2)
        self.extra_tokens += tokens * min(count, MAX_PARTS_READ)
        self.texts.append(xxh3_64_hexdigest(text).encode())


def make_prompt(text: PromptText, model: str, tenant: str = "") -> Prompt:
    """`tenant`: whose cache it shares; empty: everybody's."""
    blocks: tuple[int, ...] = ()
    texts = text.texts
    whole = texts[0] if len(texts) == 1 else b"".join(texts)
    if len(whole) >= BLOCK_BYTES:
        seed = xxh3_64_intdigest(tenant.encode("utf-8", "surrogatepass"))
        seed = xxh3_64_intdigest(model.encode("utf-8", "surrogatepass"), seed)
        if text.adapter is not NO_VALUE:
            seed = xxh3_64_intdigest(bytes(text.adapter), seed)
        seed = xxh3_64_intdigest(bytes(text.salt), seed)
        blocks = hash_blocks(whole, seed)
    return Prompt(text.text_bytes, blocks, text.extra_tokens)


def hash_blocks(text: bytes, seed: int) -> tuple[int, ...]:
    view = memoryview(text)
    hashes: list[int] = []
    end = min(len(text), HASHED_BYTES) - BLOCK_BYTES
    start = 0
    while start <= end:
        seed = xxh3_64_intdigest(view[start : start + BLOCK_BYTES], seed)
        hashes.append(seed)
        start += BLOCK_BYTES
    return tuple(hashes)


def _may_have_parts(text: bytes) -> bool:
    """Is there a list in these messages? Quick: few brackets are found one by one, at the speed of memchr."""
    at = text.find(b"[", 1)
    for _ in range(MAX_BRACKETS_READ):
        if at < 0:
            return False
        if text[at - 1] == _COLON or (text[at - 1] <= _SPACE and _LIST.match(text, at) is not None):
            return True
        at = text.find(b"[", at + 1)
    if at >= 0:
        for beginning in _LISTS:
            if text.find(beginning, at - 2) >= 0:
                return True
    return False


def _has_media(items: Raw, depth: int) -> bool:
    parts: list[Any] = decode_prompt_parts(items)
    for part in parts[:MAX_PARTS_READ]:
        if type(part) is str:
            continue
        if part.type in MEDIA_TYPES:
            return True
        if depth:
            for nested in (part.content, part.output):
                if nested is not NO_VALUE and memoryview(nested)[0] == _BRACKET and _has_media(nested, depth - 1):
                    return True
    return False


def _cut_media(text: bytes) -> tuple[bytes, float]:
    """Without payloads, and the tokens that they count as. By keys and strings, wherever they are: the servers differ
    in where they expect them. Quotes within a string are escaped, so nothing in a text looks like a key."""
    pieces = text.split(b'"', MAX_QUOTES_READ)
    tokens, kind = 0.0, b""
    for at in range(2, len(pieces) - 2):
        if pieces[at].strip() != b":":
            continue
        key, value = pieces[at - 1], pieces[at + 1]
        if key == b"type":
            tokens += PART_TOKENS.get(value, 0.0)
            kind = value if value in PART_TOKENS or value not in (b"base64", b"url") else kind  # Anthropic's sources
        elif key == b"detail" and value == b"low" and PART_TOKENS.get(kind) == IMAGE_TOKENS:
            tokens += LOW_DETAIL_TOKENS - IMAGE_TOKENS
        elif key in PAYLOAD_KEYS:
            chars = CHARS_PER_TOKEN.get(kind, 0.0)
            if chars and not value.startswith(b"http"):
                tokens += max(0.0, len(value) / chars - PART_TOKENS[kind])
            pieces[at + 1] = xxh3_64_hexdigest(value).encode()
    return b'"'.join(pieces), tokens
