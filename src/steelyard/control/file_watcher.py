"""Which files changed: written, replaced, or behind a symbolic link that now points elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

FileStamp = tuple[int, int, int, int] | None  # differs when the file does; None: it is not there


class FileWatcher:
    """Reports a change once, when the file is the same in two polls: a half-written file is not read."""

    def __init__(self, paths: Iterable[str | Path] = ()) -> None:
        self._known: dict[str, FileStamp] = {}  # as of the last change reported
        self._seen: dict[str, FileStamp] = {}  # at the last poll
        self.watch(paths)

    def watch(self, paths: Iterable[str | Path]) -> None:
        """From now on exactly these. Files watched before keep their state, so no change is missed."""
        names = dict.fromkeys(str(path) for path in paths)
        self._known = {name: self._known[name] if name in self._known else file_stamp(name) for name in names}
        self._seen = {name: self._seen.get(name, self._known[name]) for name in names}

    def poll(self) -> list[str]:
        """The paths that changed and are stable now. A missing file is waited for: someone is replacing it."""
        changed = []
        for name, before in self._seen.items():
            now = self._seen[name] = file_stamp(name)
            if now is not None and now == before and now != self._known[name]:
                self._known[name] = now
                changed.append(name)
        return changed

    def mark_current(self) -> None:
        """The files as they are now are about to be read anyway."""
        for name in self._known:
            self._known[name] = self._seen[name] = file_stamp(name)


def file_stamp(name: str) -> FileStamp:
    try:
        found = os.stat(name)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
