"""Texts as the numbers that BERT models read: WordPiece over the vocabulary of bert-base-uncased (`vocab.txt`).

`vocab.txt` is Google's, of github.com/google-research/bert, under the Apache License 2.0, as the weights are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from importlib.resources import files

MAX_WORD_CHARS = 100  # characters of a word; a longer one is unknown
MAX_TOKENS = 256  # numbers of a text; the model was trained on no more, and what is beyond is not read
BEGIN_TOKEN, END_TOKEN, UNKNOWN_TOKEN = "[CLS]", "[SEP]", "[UNK]"


class WordPiece:
    def __init__(self) -> None:
        lines = files(__package__).joinpath("vocab.txt").read_text(encoding="utf-8").split("\n")
        self._numbers = {piece: number for number, piece in enumerate(lines) if piece}

    def numbers(self, text: str) -> list[int]:
        found = [self._numbers[BEGIN_TOKEN]]
        for word in words(text):
            found += self._pieces(word)
            if len(found) >= MAX_TOKENS:
                break
        return [*found[: MAX_TOKENS - 1], self._numbers[END_TOKEN]]

    def _pieces(self, word: str) -> list[int]:
        """The longest piece that the vocabulary has, then the longest of the rest: `un`, `##aff`, `##able`."""
        found: list[int] = []
        start = 0
        while start < len(word) <= MAX_WORD_CHARS:
            for end in range(len(word), start, -1):
                number = self._numbers.get(("##" if start else "") + word[start:end])
                if number is not None:
                    break
            else:
                return [self._numbers[UNKNOWN_TOKEN]]
            found.append(number)
            start = end
        return found or [self._numbers[UNKNOWN_TOKEN]]


def words(text: str) -> Iterator[str]:
    """Small letters without accents; each sign of punctuation and each Chinese character is a word."""
    word = ""
    for char in unicodedata.normalize("NFD", _clean(text).lower()):
        category = unicodedata.category(char)
        if category == "Mn":
            continue
        alone = _is_chinese(char) or category[0] == "P" or (char.isascii() and not char.isalnum() and char != " ")
        if (alone or char == " ") and word:
            yield word
            word = ""
        if alone:
            yield char
        elif char != " ":
            word += char
    if word:
        yield word


def _clean(text: str) -> str:
    return "".join(
        " " if char.isspace() else char
        for char in text
        if char.isspace() or (unicodedata.category(char)[0] != "C" and char != "\ufffd")
    )


def _is_chinese(char: str) -> bool:
    return "\u3400" <= char <= "\u4dbf" or "\u4e00" <= char <= "\u9fff" or "\U00020000" <= char <= "\U0002fa1f"
