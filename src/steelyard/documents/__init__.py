"""YAML files into typed values. An error names the file, the line and the key path, and says what would be right."""

from .faults import DocumentError, Fault, Key, Problem, printable, show_key
from .mistakes import LOST, Salvage, mistakes, shorthand
from .reading import convert, line_of, load, parse, read
from .suggestions import closest, one_of
from .tree import Tree
from .values import Seconds, Share, Size, decode_value, encode_value

__all__ = [
    "LOST",
    "DocumentError",
    "Fault",
    "Key",
    "Problem",
    "Salvage",
    "Seconds",
    "Share",
    "Size",
    "Tree",
    "closest",
    "convert",
    "decode_value",
    "encode_value",
    "line_of",
    "load",
    "mistakes",
    "one_of",
    "parse",
    "printable",
    "read",
    "shorthand",
    "show_key",
]
