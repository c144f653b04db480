"""The small models that the servers serve. The tests compute the same to know what the right answer is."""

from __future__ import annotations

import zlib

import numpy as np

PRIME = 65_521
WORDS = tuple(first + last for first in ("ba", "ke", "li", "mo", "su", "ta", "ve", "zo") for last in "bdfglmnr")
WIDTH = len(WORDS)
DIMENSIONS = 48
CLASSES = 4


class TinyWriter:
    """A recurrent net over the integers modulo a prime: real matrix work, yet exact whatever numpy or machine."""

    def __init__(self) -> None:
        rng = np.random.RandomState(7)
        self.weights = rng.randint(0, PRIME, (WIDTH, WIDTH)).astype(np.int64)
        self.embedding = rng.randint(0, PRIME, (WIDTH, WIDTH)).astype(np.int64)

    def start(self, prompt: str) -> np.ndarray:
        state = np.ones(WIDTH, np.int64)
        for word in prompt.split():
            state = self.step(state, zlib.crc32(word.encode()) % WIDTH)
        return state

    def step(self, state: np.ndarray, word: int) -> np.ndarray:
        following: np.ndarray = (self.weights @ state + self.embedding[word]) % PRIME
        return following

    def words(self, prompt: str, count: int) -> list[str]:
        state, said = self.start(prompt), []
        for _ in range(count):
            word = int(state.argmax())
            said.append(WORDS[word])
            state = self.step(state, word)
        return said


def embed(text: str) -> np.ndarray:
    """Words hashed into a bag, projected and normalised: texts that share words come out alike."""
    bag = np.zeros(256)
    for word in text.lower().split():
        bag[zlib.crc32(word.encode()) % 256] += 1.0
    vector = bag @ np.random.RandomState(11).standard_normal((256, DIMENSIONS))
    return (vector / max(float(np.linalg.norm(vector)), 1e-12)).astype(np.float32)


def score(x: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A softmax layer as wide as `x`: (probabilities, labels). `bias` is one row for all, or one each."""
    weights = np.random.RandomState(13).standard_normal((x.shape[1], CLASSES)).astype(np.float32)
    logits = x @ weights / np.sqrt(x.shape[1], dtype=np.float32) + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares.astype(np.float32), shares.argmax(axis=1).astype(np.int64)
