"""Files and texts into values of a type."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from .problems import DocumentError
from .quantities import decode_value
from .validation import PartialDocument
from .yaml_document import YamlDocument

T = TypeVar("T")

MAX_FILE_CHARS = 16 * 1024 * 1024  # a device or a wrong file may have no end


def read(path: str | Path) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_FILE_CHARS)
            if len(text) == MAX_FILE_CHARS:
                raise DocumentError(f"{path}: larger than 16 MiB")
            return text
    except UnicodeDecodeError:
        raise DocumentError(f"{path}: not a UTF-8 text file") from None
    except OSError as problem:
        raise DocumentError(f"{path}: cannot be read: {problem.strerror or problem}") from None


def parse(text: str, kind: type[T], name: str = "<text>") -> T:
    """DocumentError tells all that is wrong, each with its line."""
    return convert(YamlDocument(text, name), kind)


def convert(tree: YamlDocument, kind: type[T]) -> T:
    if not tree.diagnostics:
        try:
            return msgspec.convert(tree.data, kind, dec_hook=decode_value)
        except msgspec.ValidationError:  # or a short form
            pass
    left = PartialDocument(tree.data, kind)
    if found := [*tree.diagnostics, *map(tree.diagnostic, left.problems)]:
        raise DocumentError.of(found)
    return msgspec.convert(left.data, kind, dec_hook=decode_value)
