"""A YAML text as values, and the lines they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from .problems import Diagnostic, DocumentError, Key, Problem, format_key
from .quantities import UNSET
from .variables import Variables

MAX_VALUES = 1_000_000  # with aliases written out: a few lines can stand for billions
MAX_DEPTH = 64  # of values in values, aliases written out: reading them is recursive


class _SafeLoader(yaml.SafeLoader):  # not the one in C: deep nesting overflows its stack
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, _TOO_DEEP, mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError):  # such as `!!bool x`; the value may be secret
            kind = str(node.tag).rpartition(":")[2]
            raise yaml.constructor.ConstructorError(None, None, f"not a valid {kind}", node.start_mark) from None


_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_UNSET_TAG = "tag:steelyard,2026:unset"
_SafeLoader.add_constructor(_UNSET_TAG, lambda loader, node: UNSET)


class _Extent(NamedTuple):
    """Of a node, with aliases written out."""

    values: int
    depth: int


class YamlDocument:
    """One YAML document. With an `environment`, `${NAME}` stands for a variable.

    `diagnostics`: keys that are there twice, of which YAML takes the last, and variables that are not set.
    """

    def __init__(self, text: str, name: str = "<text>", environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.data: Any = None
        self.diagnostics: list[Diagnostic] = []
        self._variables = None if environment is None else Variables(environment)
        self._root: Any = None
        self._extents: dict[int, _Extent] = {}
        self._children_by_key: dict[int, dict[str, tuple[Any, Any]]] = {}  # of mappings that `line` has searched
        try:
            self._read(text)
        except yaml.YAMLError as problem:
            what = getattr(problem, "problem", None) or getattr(problem, "reason", None) or str(problem)
            line = _line_of_error(problem, text)
            raise self._error(line, self.redacted(f"not valid YAML: {what}{self._quotes_needed(text, line)}")) from None
        except DocumentError:
            raise
        except ValueError as problem:
            raise self._error(0, f"not valid YAML: {problem}") from None
        if self.data is None:
            raise self._error(0, "the file is empty")

    def line(self, key: Key) -> int:
        """The line of a key, or of its nearest parent that is there."""
        node, line = self._root, _line(self._root)
        for step in key:
            found = self._child(node, step)
            if found is None:
                break
            line, node = _line(found[0]), found[1]
        return line

    def diagnostic(self, problem: Problem) -> Diagnostic:
        line = self.line(problem.key if problem.at is None else problem.at)
        return Diagnostic(self.name, line, self.redacted(format_key(problem.key)), self.redacted(problem.what))

    def redacted(self, message: str) -> str:
        """Without values of variables."""
        return message if self._variables is None else self._variables.redacted(message)

    def _read(self, text: str) -> None:
        loader = _SafeLoader(text)
        try:
            self._root = loader.get_single_node()
            if self._root is not None:
                self._survey(self._root, (), set(), loader)
                self.data = loader.construct_document(self._root)
        finally:
            loader.dispose()

    def _survey(self, node: Any, key: Key, above: set[int], loader: _SafeLoader) -> _Extent:
        """Fills in variables and finds repeated keys below a node."""
        if id(node) in above:
            raise self._error(_line(node), "an alias stands for something that contains it")
        if id(node) not in self._extents:
            above.add(id(node))
            values, depth = 1, 0
            for step, child in self._children(node, key, loader):
                below = self._survey(child, (*key, step), above, loader)
                values, depth = values + below.values, max(depth, below.depth)
            above.discard(id(node))
            if values > MAX_VALUES:
                raise self._error(_line(node), f"more than {MAX_VALUES:,} values, aliases written out")
            if depth >= MAX_DEPTH:
                raise self._error(_line(node), f"{_TOO_DEEP}, aliases written out")
            self._extents[id(node)] = _Extent(values, depth + 1)
        return self._extents[id(node)]

    def _children(self, node: Any, key: Key, loader: _SafeLoader) -> Iterator[tuple[str | int, Any]]:
        if isinstance(node, yaml.SequenceNode):
            yield from enumerate(node.value)
        elif isinstance(node, yaml.MappingNode):
            for name, _ in node.value:
                if not isinstance(name, yaml.ScalarNode):
                    raise self._error(_line(name), "not valid YAML: found unhashable key: write text before the colon")
                self._fill_in(name, key, loader)
            self._find_repeated(node, key)
            yield from ((name.value, value) for name, value in node.value)
        else:
            self._fill_in(node, key, loader)
            node.value.encode()  # "\ud800" is an escape of YAML, but no character

    def _fill_in(self, node: yaml.ScalarNode, key: Key, loader: _SafeLoader) -> None:
        if self._variables is None or "${" not in node.value:
            return
        try:
            node.value = self._variables.expand(node.value)
        except ValueError as problem:
            self.diagnostics.append(Diagnostic(self.name, _line(node), format_key(key), str(problem)))
            node.tag = _UNSET_TAG
            return
        if node.style is None:  # without quotes, so it may be a number now
            node.tag = str(loader.resolve(yaml.ScalarNode, node.value, (True, False)))  # type: ignore[no-untyped-call]

    def _find_repeated(self, node: yaml.MappingNode, key: Key) -> None:
        first: dict[tuple[str, str], int] = {}
        for name, _ in node.value:
            name.value.encode()
            if (same := (name.tag, name.value)) in first:
                what = f"`{name.value}` is there twice, first in line {first[same]}: remove one or rename it"
                shown = self.redacted(format_key(key)), self.redacted(what)
                self.diagnostics.append(Diagnostic(self.name, _line(name), *shown))
            first.setdefault(same, _line(name))

    def _child(self, node: Any, step: str | int) -> tuple[Any, Any] | None:
        """The node to point at, and the value."""
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            return node.value[step], node.value[step]
        if not isinstance(node, yaml.MappingNode):
            return None
        if id(node) not in self._children_by_key:
            self._children_by_key[id(node)] = {name.value: (name, value) for name, value in reversed(node.value)}
        if (found := self._children_by_key[id(node)].get(str(step))) is not None:
            return found
        for name, value in node.value:
            if name.tag == "tag:yaml.org,2002:merge":
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if (found := self._child(source, step)) is not None:
                        return found
        return None

    def _quotes_needed(self, text: str, line: int) -> str:
        there = "".join(text.splitlines()[line - 1 : line]) if self._variables and self._root is None else ""
        return " (inside [ ] and { }, put ${…} in quotes)" if "${" in there else ""

    def _error(self, line: int, what: str) -> DocumentError:
        return DocumentError.of([Diagnostic(self.name, line, "", what)])


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _line_of_error(problem: yaml.YAMLError, text: str) -> int:
    mark = getattr(problem, "problem_mark", None)
    if mark is not None:
        return int(mark.line) + 1
    position = getattr(problem, "position", None)  # of a character that YAML does not allow
    return 0 if position is None else text.count("\n", 0, position) + 1
