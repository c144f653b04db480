"""The demo's model: a text in, eight numbers out, one for each topic it knows.

A random encoder with a trained read-out (Wieting and Kiela, "No training required", ICLR 2019): words become vectors by
hashing, two wide layers of fixed random weights mix them, and only the last layer is learned, by ridge regression on
the sentences of `corpus`; words that are in many of these count less. Learning takes some hundredths of a second, so it
is done at each start. The cost of a request grows with its words, as it does in larger models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from .corpus import TOPICS

Matrix = NDArray[np.float32]

BUCKETS = 8192  # of the hashed words and parts of words
WIDTH = 256
HIDDEN = 1024
LAYERS = 2
RIDGE = 0.1  # how much the read-out mistrusts 64 sentences
_WORD = re.compile(r"[^\W_]+")


class TopicModel:
    """`embed(texts)`. Two of them give the same answers: all that is random in it has a fixed seed."""

    topics = tuple(TOPICS)

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self._table = _normal(rng, BUCKETS, WIDTH)
        self._layers = [(_normal(rng, WIDTH, HIDDEN), _normal(rng, HIDDEN, WIDTH)) for _ in range(LAYERS)]
        self._readout = self._train()

    def embed(self, texts: Sequence[str]) -> Matrix:
        """A row for each text, of length 1: how much it is of each topic."""
        scores = self._encode([words(text) for text in texts]) @ self._readout
        return _unit(scores)

    def _train(self) -> Matrix:
        encoded = self._encode([words(text) for texts in TOPICS.values() for text in texts])
        wanted = np.repeat(np.eye(len(TOPICS), dtype=np.float32), [len(texts) for texts in TOPICS.values()], axis=0)
        wanted -= wanted.mean(axis=0)
        penalty = RIDGE * np.eye(WIDTH, dtype=np.float32)
        return np.linalg.solve(encoded.T @ encoded + penalty, encoded.T @ wanted)

    def _encode(self, texts: Sequence[list[str]]) -> Matrix:
        """A row for each text: the sum over its words."""
        flat = [word for text in texts for word in text]
        x = self._vectors(flat)
        for into, out in self._layers:
            x = _unit(x + np.maximum(x @ into, 0.0) @ out)
        x *= np.array([_WEIGHTS.get(word, 1.0) for word in flat], np.float32)[:, None]
        starts = np.cumsum([0, *(len(text) for text in texts[:-1])])
        return _unit(np.add.reduceat(x, starts))

    def _vectors(self, all_words: list[str]) -> Matrix:
        """A row for each word: of itself and of its parts, so that `rains` is near `rain`."""
        rows: list[int] = []
        starts: list[int] = []
        for word in all_words:
            starts.append(len(rows))
            rows += [crc32(part.encode()) % BUCKETS for part in _parts(word)]
        return _unit(np.add.reduceat(self._table[rows], starts))


def words(text: str) -> list[str]:
    """At least one, so that every text has a place in the sums."""
    return _WORD.findall(text.lower()) or [""]


def _weights() -> dict[str, float]:
    """Of a word: one over the sentences it is in."""
    counts = Counter(word for texts in TOPICS.values() for text in texts for word in set(words(text)))
    return {word: 1.0 / count for word, count in counts.items()}


def _parts(word: str) -> list[str]:
    marked = f"<{word}>"
    return [marked, *(marked[at : at + 4] for at in range(len(marked) - 3))]


def _normal(rng: np.random.Generator, rows: int, columns: int) -> Matrix:
    return rng.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5)


def _unit(rows: Matrix) -> Matrix:
    lengths: Matrix = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Matrix = rows / lengths.clip(1e-9)
    return unit


_WEIGHTS = _weights()
