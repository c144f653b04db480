"""Tells systemd how it goes, if systemd started us with `Type=notify` (or `notify-reload`)."""

from __future__ import annotations

import os
import socket
import time


def notify(*lines: str) -> bool:
    """Send such as `READY=1`. Never raises: a service runs on, whether or not its manager listens."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
            link.setblocking(False)
            link.connect("\0" + place[1:] if place[0] == "@" else place)
            link.send("\n".join(lines).encode())
    except OSError:
        return False
    return True


def notify_reloading() -> bool:
    """systemd wants to know since when, to tell this reload from the one before."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")
