"""An extension of griffe: the comment behind a field or an enumeration's member is its description."""

from __future__ import annotations

from typing import Any

from griffe import Attribute, Class, Docstring, Extension


class TrailingComments(Extension):
    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        if attr.docstring is None and attr.endlineno is not None:
            comment = attr.lines_collection[attr.filepath][attr.endlineno - 1].partition("  # ")[2]
            if comment and not comment.startswith("noqa"):
                attr.docstring = Docstring(comment, lineno=attr.endlineno, parent=attr)

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        """Nobody calls the constructor of an enumeration."""
        if "Enum" in map(str, cls.bases):
            cls.members.pop("__init__", None)
