"""Features from bodies of the Open Inference Protocol: elements, batch size, bytes of text."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from ..base import BodyInfo, bound_feature
from .schemas import NO_VALUE
from .text import DECODE_ERRORS, DEFAULT_OUTPUT_TOKENS, measure_field, number_or


class _Size(Struct, gc=False):
    binary_data_size: float | None = None


class _Tensor(Struct, gc=False):
    shape: list[float] = []
    datatype: str = ""
    data: Raw = NO_VALUE
    parameters: _Size | None = None


class _Sequence(Struct, gc=False):
    sequence_id: int | str | None = None


class _Infer(Struct, gc=False):
    inputs: list[_Tensor] = []
    parameters: _Sequence | None = None


class _Limit(Struct, gc=False):
    max_tokens: float | None = None


class _Generate(Struct, gc=False):
    text_input: Raw = NO_VALUE
    max_tokens: float | None = None
    parameters: _Limit | None = None


_infer = msgspec.json.Decoder(_Infer).decode
_generate = msgspec.json.Decoder(_Generate).decode


def infer_info(text: bytes) -> BodyInfo | None:
    """Elements of all inputs, the batch (first dimension of the first input), bytes of text; None: unreadable."""
    try:
        said = _infer(text)
        sequence = said.parameters.sequence_id if said.parameters is not None else None
        key = str(sequence) if sequence else None  # 0 and "" say: no sequence
    except DECODE_ERRORS:
        return None
    elements = strings = 0.0
    for tensor in said.inputs:
        elements += _product(tensor.shape)
        if tensor.datatype == "BYTES":
            strings += _bytes_of(tensor)
    batch = said.inputs[0].shape[0] if said.inputs and said.inputs[0].shape else 0.0
    return BodyInfo("", (bound_feature(elements), bound_feature(batch), bound_feature(strings)), key)


def generate_info(body: bytes) -> BodyInfo | None:
    """As in the openai dialect: characters of the prompt, most output tokens, prompts."""
    try:
        said = _generate(body)
        size, count = measure_field(said.text_input)
    except DECODE_ERRORS:
        return None
    limit = said.max_tokens
    if limit is None and said.parameters is not None:
        limit = said.parameters.max_tokens
    return BodyInfo("", (bound_feature(size), bound_feature(number_or(limit, DEFAULT_OUTPUT_TOKENS)), float(count)))


def _product(shape: list[float]) -> float:
    product = 1.0
    for dimension in shape:
        product *= bound_feature(dimension)
    return product


def _bytes_of(tensor: _Tensor) -> float:
    if tensor.parameters is not None and tensor.parameters.binary_data_size is not None:
        return bound_feature(tensor.parameters.binary_data_size)
    return float(len(tensor.data))
