"""Files and texts into a configuration. All that is wrong is told at once, with file, line and key path."""

from __future__ import annotations

from pathlib import Path

from ..documents import DocumentError, Tree, convert, read
from .files import anchored, file_problems
from .rules import find_problems
from .shape import Config


def load_config(path: str | Path) -> Config:
    """Read and check a configuration file, and the files it names."""
    return load_tree(Tree(read(path), str(path)), Path(path).absolute().parent)


def parse_config(text: str, name: str = "<text>") -> Config:
    """A configuration from a text. Files it names are not looked at."""
    return _checked(Tree(text, name))


def load_tree(tree: Tree, folder: Path) -> Config:
    """Of a text that was read from a file in that folder."""
    config = anchored(_checked(tree), folder)
    found = [tree.fault(problem) for problem in file_problems(config)]
    if found:
        raise DocumentError.of(found)
    return config


def _checked(tree: Tree) -> Config:
    config = convert(tree, Config)
    found = [tree.fault(problem) for problem in find_problems(config)]
    if found:
        raise DocumentError.of(found)
    return config
