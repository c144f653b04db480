"""Bearer tokens of the admin API: a file, one a line, read again when it changes."""

from __future__ import annotations

import hmac
import logging

from ....config.secret_files import read_tokens
from ....core.errors import SteelyardError
from ...file_watcher import file_stamp

log = logging.getLogger("steelyard.admin")


class AccessError(SteelyardError):
    """The admin API would be open to everybody, or to nobody."""

    reason = "admin_access"


class TokenFile:
    """If the file becomes unusable, the last good tokens stay."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._mark = file_stamp(path)
        self._known = _read(path)

    def knows(self, token: bytes) -> bool:
        """In constant time."""
        self._look()
        matches = [hmac.compare_digest(token, known) for known in self._known]
        return any(matches)

    def _look(self) -> None:
        mark = file_stamp(self.path)
        if mark == self._mark:
            return
        self._mark = mark
        try:
            self._known = _read(self.path)
        except AccessError as problem:
            log.error("%s; the last good tokens stay", problem)
        else:
            log.info("read %d admin tokens from %s", len(self._known), self.path)


def _read(path: str) -> tuple[bytes, ...]:
    try:
        return tuple(token.encode() for token in read_tokens(path))
    except ValueError as problem:
        raise AccessError(f"admin.token_file: {problem}") from None
