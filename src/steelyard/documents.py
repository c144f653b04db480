"""YAML files into typed values. An error names the file, the line and the key path, and says what would be right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from .core.errors import SteelyardError
from .units import duration

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?:key` in `)?(?P<path>[^`]*)`)?$", re.DOTALL)
_FIELD = re.compile(r"field `([^`]+)`$|^`([^`]+)` must be")  # msgspec and our checks name a field by its object's path
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


class Seconds(float):
    """A duration in a document: `200ms`, `1.5s`, or a number of seconds."""


class DocumentError(SteelyardError, ValueError):
    reason = "bad_document"


def load(path: str | Path, kind: type[T]) -> T:
    """Read a YAML file as `kind`."""
    return parse(read(path), kind, str(path))


def read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DocumentError(f"{path}: not a UTF-8 text file") from None
    except OSError as problem:
        raise DocumentError(f"{path}: cannot be read: {problem.strerror or problem}") from None


def parse(text: str, kind: type[T], name: str = "<text>") -> T:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        what = getattr(problem, "problem", None) or str(problem)
        raise DocumentError(f"{where}: not valid YAML: {what}") from None
    except (ValueError, RecursionError) as problem:  # a date that is none; thousands of brackets
        raise DocumentError(f"{name}: not valid YAML: {problem}") from None
    if data is None:
        raise DocumentError(f"{name}: the file is empty")
    try:
        return msgspec.convert(data, kind, dec_hook=_decode)
    except msgspec.ValidationError as problem:
        match = _AT.match(str(problem))
        assert match is not None
        path = (match["path"] or "$").removeprefix("$")
        field = _FIELD.search(match["what"])
        line = _line_of(node, f"{path}.{field[1] or field[2]}" if field else path)
        what = match["what"][0].lower() + match["what"][1:]
        raise DocumentError(f"{name}:{line}: {path.removeprefix('.') or 'top level'}: {what}") from None


def line_of(text: str, path: str) -> int:
    """The line in a YAML text of a key path such as `policies[2]`, or of its nearest parent that is there."""
    return _line_of(yaml.compose(text, Loader=yaml.SafeLoader), f".{path}")


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Seconds:
        if not isinstance(value, str | int | float):
            raise ValueError("write a duration, for example 200ms, 1.5s or 2m")
        return Seconds(duration(value))
    raise NotImplementedError(f"no way to read a {kind.__name__}")


def _line_of(node: Any, path: str) -> int:
    """The line of a key path, or of its nearest parent that exists."""
    line: int = node.start_mark.line + 1
    for key, index in _STEP.findall(path):
        found = None
        if key and isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == key), None)
        elif index.isdigit() and isinstance(node, yaml.SequenceNode) and int(index) < len(node.value):
            found = (node.value[int(index)], node.value[int(index)])
        if found is None:
            break
        line = found[0].start_mark.line + 1
        node = found[1]
    return line
