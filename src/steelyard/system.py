"""What the operating system says: how a process ended, why a connection failed."""

from __future__ import annotations

import errno
import signal
from contextlib import suppress

NOT_LISTENING_ERRNOS = frozenset((errno.ECONNREFUSED, errno.ENOENT))  # no process listens at the address
EXHAUSTED_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
LOCAL_ERRNOS = EXHAUSTED_ERRNOS | {errno.EADDRNOTAVAIL}  # this machine's own trouble: says nothing of the peer


def describe_exit(code: int) -> str:
    """`code` as subprocess has it: negative for a signal."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
