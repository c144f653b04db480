"""What the system says: how a process ended, why a connection failed, where state is kept, which form of us runs."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path

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


def package_form() -> str:
    """Whether the hot modules are machine code (mypyc) or run as the source they are."""
    spec = find_spec("steelyard.core.balancer")  # finds it and does not import it
    return "compiled" if spec is not None and isinstance(spec.loader, ExtensionFileLoader) else "pure Python"


def state_directory() -> Path:
    if given := os.environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(given)
    if (given := os.environ.get("XDG_STATE_HOME", "")).startswith("/"):
        return Path(given, "steelyard")
    return Path.home() / ".local" / "state" / "steelyard"
