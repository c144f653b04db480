"""WordPiece against what the tokenizer of all-MiniLM-L6-v2 itself says (`tokenizers` 0.22 with its tokenizer.json)."""

from __future__ import annotations

import pytest

from steelyard.demo.replica.wordpiece import MAX_TOKENS, WordPiece, words

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
def pieces() -> WordPiece:
    return WordPiece()


@pytest.mark.parametrize("text", KNOWN)
def test_known_texts(pieces: WordPiece, text: str) -> None:
    assert pieces.numbers(text) == [101, *KNOWN[text], 102]


def test_a_long_text_is_cut(pieces: WordPiece) -> None:
    numbers = pieces.numbers("rain " * 1000)
    assert len(numbers) == MAX_TOKENS
    assert (numbers[0], numbers[-1]) == (101, 102)


def test_words() -> None:
    assert list(words("It's  10 °C, Ångström!")) == ["it", "'", "s", "10", "°c", ",", "angstrom", "!"]
