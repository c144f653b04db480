"""YAML files into typed values. An error names file, line and key path, and says what would be right."""

from .problems import Diagnostic, DocumentError, Key, Problem, format_key, printable
from .quantities import Seconds, Share, Size, decode_value, encode_value
from .reader import convert, parse, read
from .tagged import Tagged, is_tagged
from .validation import UNUSABLE, PartialDocument, shorthand, type_problems
from .wording import did_you_mean, did_you_mean_or_list
from .yaml_document import YamlDocument

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
    "Tagged",
    "YamlDocument",
    "convert",
    "decode_value",
    "did_you_mean",
    "did_you_mean_or_list",
    "encode_value",
    "format_key",
    "is_tagged",
    "parse",
    "printable",
    "read",
    "shorthand",
    "type_problems",
]
