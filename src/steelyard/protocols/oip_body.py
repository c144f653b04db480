"""What the bodies of the Open Inference Protocol tell: how many numbers, in how large a batch, with how much text."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from .base import Peek, bounded
from .shapes import NOTHING
from .text import BROKEN, OUTPUT, given, measure


class _Size(Struct, gc=False):
    binary_data_size: float | None = None


class _Tensor(Struct, gc=False):
    shape: list[float] = []
    datatype: str = ""
    data: Raw = NOTHING
    parameters: _Size | None = None


class _Sequence(Struct, gc=False):
    sequence_id: int | str | None = None


class _Infer(Struct, gc=False):
    inputs: list[_Tensor] = []
    parameters: _Sequence | None = None


class _Limit(Struct, gc=False):
    max_tokens: float | None = None


class _Generate(Struct, gc=False):
    text_input: Raw = NOTHING
    max_tokens: float | None = None
    parameters: _Limit | None = None


_infer = msgspec.json.Decoder(_Infer).decode
_generate = msgspec.json.Decoder(_Generate).decode


def infer(text: bytes) -> Peek | None:
    """Elements of all inputs, the batch (first dimension of the first input), bytes of text; None: cannot be told."""
    try:
        said = _infer(text)
        sequence = said.parameters.sequence_id if said.parameters is not None else None
        key = str(sequence) if sequence else None  # 0 and "" say: no sequence
    except BROKEN:
        return None
    elements = strings = 0.0
    for tensor in said.inputs:
        elements += _product(tensor.shape)
        if tensor.datatype == "BYTES":
            strings += _bytes_of(tensor)
    batch = said.inputs[0].shape[0] if said.inputs and said.inputs[0].shape else 0.0
    return Peek("", (bounded(elements), bounded(batch), bounded(strings)), key)


def generate(body: bytes) -> Peek | None:
    """As the openai dialect: characters of the prompt, tokens that may come out, how many prompts."""
    try:
        said = _generate(body)
        size, count = measure(said.text_input)
    except BROKEN:
        return None
    limit = said.max_tokens
    if limit is None and said.parameters is not None:
        limit = said.parameters.max_tokens
    return Peek("", (bounded(size), bounded(given(limit, OUTPUT)), float(count)))


def _product(shape: list[float]) -> float:
    product = 1.0
    for dimension in shape:
        product *= bounded(dimension)
    return product


def _bytes_of(tensor: _Tensor) -> float:
    if tensor.parameters is not None and tensor.parameters.binary_data_size is not None:
        return bounded(tensor.parameters.binary_data_size)
    return float(len(tensor.data))
