"""YAML files into typed values. An error names the file, the line and the key path, and says what would be right."""

from .faults import Diagnostic, DocumentError, Key, Problem, format_key, printable
from .mistakes import UNUSABLE, PartialDocument, shorthand, type_problems
from .reading import convert, line_of, load, parse, read
from .suggestions import did_you_mean, did_you_mean_or_list
from .tree import YamlDocument
from .values import Seconds, Share, Size, decode_value, encode_value

__all__ = [
    "UNUSABLE",
    "Diagnostic",
    "DocumentError",
    "Key",
    "PartialDocument",
    "Problem",
    "Seconds",
    "Share",
    "Size",
    "YamlDocument",
    "convert",
    "decode_value",
    "did_you_mean",
    "did_you_mean_or_list",
    "encode_value",
    "format_key",
    "line_of",
    "load",
    "parse",
    "printable",
    "read",
    "shorthand",
    "type_problems",
]
