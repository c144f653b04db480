"""What runtimes and discovery sources share: configuration that comes in kinds, one struct a kind.

The struct holds its keys, checks, advice, description and fingerprint, and `open` makes what it configures. Nothing
else switches on the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec

from ...documents import Key, Problem, Tagged, encode_value

Findings = Iterator[tuple[Key, str, str]]  # advice: key, what is unwise, what to do


class ConfigKind(Tagged):
    """The interface of every kind. It has no fields: its structs have them."""

    __slots__ = ()

    required_methods = ("open",)
    advice: ClassVar[Mapping[str, Callable[[Any, Key], Findings]]] = {}  # stable code: method (`steelyard check`)
    path_fields: ClassVar[tuple[str, ...]] = ()  # files and folders, relative to that of the configuration
    live_fields: ClassVar[frozenset[str]] = frozenset()  # changing these reopens nothing
    kind: str  # its name in the table, or package.module:Class

    @property
    def may_use_tls(self) -> bool:
        """May replicas of it have https URLs? Then the model's `tls` is of use."""
        return True

    def describe(self) -> str:
        """For people: `file replicas.yaml`."""
        return self.kind

    def file_problems(self, key: Key) -> Iterator[Problem]:
        yield from ()

    def with_absolute_paths(self, folder: Path) -> Self:
        settings: Any = self
        given = {name: str(folder / path) for name in self.path_fields if (path := getattr(self, name))}
        changed: Self = msgspec.structs.replace(settings, **given)
        return changed

    def fingerprint(self: Any) -> str:
        """Of all fields but `live_fields`."""
        data = msgspec.to_builtins(self, enc_hook=encode_value)
        made = {name: value for name, value in data.items() if name not in self.live_fields}
        return sha256(msgspec.json.encode(made, order="deterministic")).hexdigest()[:16]

    def __post_init__(self: Any) -> None:
        if not self.kind:  # made by Python, not read
            msgspec.structs.force_setattr(self, "kind", self.name_of(type(self)))
