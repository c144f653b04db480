"""Which files changed: written, replaced, or reached through a symbolic link that now leads elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

FileStamp = tuple[int, int, int, int] | None  # of a file's state; None: it is not there


class FileWatcher:
    """A change is told once, when the file has held still between two looks: nobody reads what is half written."""

    def __init__(self, paths: Iterable[str | Path] = ()) -> None:
        self._known: dict[str, FileStamp] = {}  # as of the last change told
        self._seen: dict[str, FileStamp] = {}  # at the last look
        self.watch(paths)

    def watch(self, paths: Iterable[str | Path]) -> None:
        """From now on watch these. What was watched before is remembered, so a change meanwhile is not missed."""
        names = dict.fromkeys(str(path) for path in paths)
        self._known = {name: self._known[name] if name in self._known else _stamp(name) for name in names}
        self._seen = {name: self._seen.get(name, self._known[name]) for name in names}

    def poll(self) -> list[str]:
        """The paths that changed and hold still. A file that is gone is waited for: someone is replacing it."""
        changed = []
        for name, before in self._seen.items():
            now = self._seen[name] = _stamp(name)
            if now is not None and now == before and now != self._known[name]:
                self._known[name] = now
                changed.append(name)
        return changed

    def mark_current(self) -> None:
        """What is there now is known: it is about to be read anyway."""
        for name in self._known:
            self._known[name] = self._seen[name] = _stamp(name)


def _stamp(name: str) -> FileStamp:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
