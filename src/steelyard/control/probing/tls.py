"""TLS to replicas: one context for each set of files, made anew when a file changes."""

from __future__ import annotations

import os
import ssl
from contextlib import suppress

from ...config import ReplicaTlsConfig
from ...config.contexts import replica_tls_context
from .errors import LocalFailureError

FileStamps = tuple[tuple[int, int, int], ...]


class TlsContexts:
    """What was read last goes on to be used as long as the files cannot be read: someone is replacing them."""

    def __init__(self) -> None:
        self._known: dict[ReplicaTlsConfig, tuple[FileStamps, ssl.SSLContext]] = {}

    def get(self, tls: ReplicaTlsConfig) -> ssl.SSLContext:
        """CannotAskError: there is none."""
        known = self._known.get(tls)
        marks = _file_stamps(tls)
        if known is not None and known[0] == marks:
            return known[1]
        try:
            context = replica_tls_context(tls)
        except (OSError, ValueError) as problem:  # OpenSSL's errors are OSErrors
            if known is None:
                raise LocalFailureError(f"the files of `tls` cannot be used: {problem}") from None
            context = known[1]
        self._known[tls] = marks, context
        return context


def _file_stamps(tls: ReplicaTlsConfig) -> FileStamps:
    marks = []
    for name in filter(None, (tls.ca, tls.certificate, tls.key)):
        with suppress(OSError):
            found = os.stat(name)
            marks.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(marks)
