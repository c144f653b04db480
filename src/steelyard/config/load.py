"""Reads files and texts into a configuration. Reports all errors at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..documents import (
    UNUSABLE,
    Diagnostic,
    DocumentError,
    Key,
    PartialDocument,
    Problem,
    YamlDocument,
    decode_value,
    read,
)
from .files import file_problems, with_absolute_paths
from .rules.gateway import find_problems
from .sections.root import Config

_MAX_ROUNDS = 4  # each leaves more out, until what is left is valid


class CheckedConfig(NamedTuple):
    """With diagnostics, `config` is the valid rest (None: nothing that could be served), good only for advice on the
    keys that `partial` has."""

    config: Config | None
    diagnostics: list[Diagnostic]
    partial: PartialDocument


def load_config(path: str | Path) -> Config:
    """Reads and checks a file, and the files it names."""
    return _valid_or_raise(check_tree(tree_of(path), Path(path).absolute().parent))


def parse_config(text: str, name: str = "<text>", environment: Mapping[str, str] | None = None) -> Config:
    """Does not look at the files that the text names."""
    return _valid_or_raise(check_tree(YamlDocument(text, name, environment)))


def tree_of(path: str | Path) -> YamlDocument:
    """A file before its checks; `${NAME}` is a variable of this process."""
    return YamlDocument(read(path), str(path), os.environ)


def check_tree(tree: YamlDocument, folder: Path | None = None) -> CheckedConfig:
    """`folder`: of the file that was read; then the files it names are checked too."""
    left = PartialDocument(tree.data, Config)
    config = _converted(left)
    problems = [*_problems(config, left, folder)] if config is not None else []
    faults = [*tree.diagnostics, *map(tree.diagnostic, left.problems), *map(tree.diagnostic, problems)]
    if config is None or not faults:
        return CheckedConfig(config and _resolved(config, folder), faults, left)
    return _without_problems(tree, problems, folder)._replace(diagnostics=faults)


def _problems(config: Config, left: PartialDocument, folder: Path | None) -> Iterator[Problem]:
    """What the rules say of the rest, without what follows from keys that were left out."""
    config = _resolved(config, folder)
    for key, what, at in (*find_problems(config), *(file_problems(config) if folder is not None else ())):
        if not left.is_affected(left.original_key(key)):
            yield Problem(left.original_key(key), what, None if at is None else left.original_key(at))


def _without_problems(tree: YamlDocument, problems: list[Problem], folder: Path | None) -> CheckedConfig:
    """Leaves out each key that breaks a rule; if the rest still does, what the key is part of."""
    wrong: set[Key] = set()
    for above in range(_MAX_ROUNDS):
        wrong |= {problem.key[: len(problem.key) - above] for problem in problems}
        left = PartialDocument(tree.data, Config, frozenset(wrong))
        config = _converted(left)
        if config is None:
            break
        problems = [Problem(left.original_key(key), what) for key, what, _ in find_problems(config)]
        if not problems:
            return CheckedConfig(_resolved(config, folder), [], left)
    return CheckedConfig(None, [], left)


def _converted(left: PartialDocument) -> Config | None:
    return None if left.data is UNUSABLE else msgspec.convert(left.data, Config, dec_hook=decode_value)


def _resolved(config: Config, folder: Path | None) -> Config:
    return config if folder is None else with_absolute_paths(config, folder)


def _valid_or_raise(examined: CheckedConfig) -> Config:
    if examined.config is None or examined.diagnostics:
        raise DocumentError.of(examined.diagnostics)
    return examined.config
