"""Bodies in which the gateway and the server may find different models.

Of two equal keys Python takes the last and RapidJSON the first; Go does not tell `Model` from `model`; some take NaN, a
byte order mark or UTF-16; and a form may look like JSON to a server that ignores the content type.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw

from .text import DECODE_ERRORS

NOT_JSON_SENTENCE = "The body is not valid JSON in UTF-8, so which model a server finds in it cannot be told."
TWO_MODELS_SENTENCE = "The body names the model more than once, or in a way that servers read differently."
NO_FORM_SENTENCE = (
    "The content-type says that the body is a form, which this endpoint does not take: send application/json."
)
CHARSET_SENTENCE = "The content-type names a charset that is not UTF-8."

_NAMES = re.compile(rb'"[mM][oO][dD][eE][lL]"')
_ESCAPED = re.compile(rb"\\u00[46]")  # an escaped letter
_CHARSET = re.compile(rb'charset\s*=\s*"?([^\s;,"]*)', re.IGNORECASE)
_UTF_8 = frozenset((b"utf-8", b"utf8", b"us-ascii"))
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def json_ambiguity(body: bytes, content_type: bytes) -> str:
    """Of a valid JSON body; empty: every reader finds the same model."""
    if content_type and (doubt := _content_type_ambiguity(body, content_type)):
        return doubt
    named = _NAMES.findall(body)
    if named in ([], [b'"model"']) and not (b"\\" in body and _ESCAPED.search(body)):
        return ""
    try:
        return _key_ambiguity(body)
    except DECODE_ERRORS:
        return NOT_JSON_SENTENCE


def _key_ambiguity(body: bytes) -> str:
    """By its outermost keys. `fields` lacks the first of two equal keys, so that sizes do not add up."""
    compact = msgspec.json.format(body, indent=-1)
    fields = _fields(compact)
    size = 1 + sum(len(name.encode()) + len(value) + 4 for name, value in fields.items())
    if [name for name in fields if name.lower() == "model"] not in ([], ["model"]):
        return TWO_MODELS_SENTENCE
    return TWO_MODELS_SENTENCE if fields and size != len(compact) else ""


def _content_type_ambiguity(body: bytes, content_type: bytes) -> str:
    kind = content_type[:33].lower()
    if kind.startswith(b"multipart/"):
        return NO_FORM_SENTENCE
    # `curl -d` says so of everything. It is JSON, unless a reader of forms finds a model in it too.
    if kind.startswith(b"application/x-www-form-urlencoded"):
        names = [name for name, _ in parse_qsl(body.decode("latin-1"), keep_blank_values=True)]
        return NO_FORM_SENTENCE if any(name.strip().lower().startswith("model") for name in names) else ""
    charset = _CHARSET.search(content_type)
    return CHARSET_SENTENCE if charset is not None and charset[1].lower() not in _UTF_8 else ""


def find_models(body: bytes) -> set[str]:
    """Every value of a key `model`, at any depth, for endpoints that no dialect knows."""
    found = set()
    if b"\\" in body:
        body = _LETTER.sub(lambda match: bytes.fromhex(match[1].decode()), body)  # so that keys are as they are read
    for match in _VALUE.finditer(body):
        try:
            found.add(msgspec.json.decode(match[1], type=str))
        except DECODE_ERRORS:
            continue
    return found


_LETTER = re.compile(rb"\\u00([46][0-9A-Fa-f])")
_VALUE = re.compile(rb'"(?i:model)"\s*:\s*("(?:[^"\\]|\\.){0,512}")')
