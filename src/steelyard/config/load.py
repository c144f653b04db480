"""Files and texts into a configuration. All that is wrong is told at once, with file, line and key path."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..documents import LOST, DocumentError, Fault, Key, Problem, Salvage, Tree, decode_value, read
from .files import anchored, file_problems
from .rules import find_problems
from .shape import Config

_ROUNDS = 4  # each leaves more out, until what is left is valid


class Examined(NamedTuple):
    """A document, and all that is wrong with it.

    If anything is, `config` is what is left without the mistakes (None: nothing that could be served), and only good
    for advice: `left` knows which keys that may be given for.
    """

    config: Config | None
    faults: list[Fault]
    left: Salvage


def load_config(path: str | Path) -> Config:
    """Read and check a configuration file, and the files it names."""
    return _valid(examine(tree_of(path), Path(path).absolute().parent))


def parse_config(text: str, name: str = "<text>", environment: Mapping[str, str] | None = None) -> Config:
    """A configuration from a text. Files it names are not looked at."""
    return _valid(examine(Tree(text, name, environment)))


def tree_of(path: str | Path) -> Tree:
    """A configuration file before it is checked; `${NAME}` in it is a variable of this process."""
    return Tree(read(path), str(path), os.environ)


def examine(tree: Tree, folder: Path | None = None) -> Examined:
    """`folder`: where the text was read from a file; then the files that it names are looked at too."""
    left = Salvage(tree.data, Config)
    config = _converted(left)
    problems = [*_problems(config, left, folder)] if config is not None else []
    faults = [*tree.faults, *map(tree.fault, left.problems), *map(tree.fault, problems)]
    if config is None or not faults:
        return Examined(config and _placed(config, folder), faults, left)
    return _without_mistakes(tree, problems, folder)._replace(faults=faults)


def _problems(config: Config, left: Salvage, folder: Path | None) -> Iterator[Problem]:
    """What the rules say of what is left; not what is only so because something was left out."""
    config = _placed(config, folder)
    for key, what, at in (*find_problems(config), *(file_problems(config) if folder is not None else ())):
        if not left.concerns(left.original(key)):
            yield Problem(left.original(key), what, None if at is None else left.original(at))


def _without_mistakes(tree: Tree, problems: list[Problem], folder: Path | None) -> Examined:
    """A key that breaks a rule is left out; if it still does, what the key is part of."""
    wrong: set[Key] = set()
    for above in range(_ROUNDS):
        wrong |= {problem.key[: len(problem.key) - above] for problem in problems}
        left = Salvage(tree.data, Config, frozenset(wrong))
        config = _converted(left)
        if config is None:
            break
        problems = [Problem(left.original(key), what) for key, what, _ in find_problems(config)]
        if not problems:
            return Examined(_placed(config, folder), [], left)
    return Examined(None, [], left)


def _converted(left: Salvage) -> Config | None:
    return None if left.data is LOST else msgspec.convert(left.data, Config, dec_hook=decode_value)


def _placed(config: Config, folder: Path | None) -> Config:
    return config if folder is None else anchored(config, folder)


def _valid(examined: Examined) -> Config:
    if examined.config is None or examined.faults:
        raise DocumentError.of(examined.faults)
    return examined.config
