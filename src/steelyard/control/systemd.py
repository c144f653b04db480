"""systemd: readiness notifications (`Type=notify`, `notify-reload`) and socket activation (`LISTEN_FDS`)."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

SD_LISTEN_FDS_START = 3  # file descriptor, says sd_listen_fds(3)


def notify(*lines: str) -> bool:
    """Sends lines such as `READY=1`. Never raises: the service runs whether or not systemd listens."""
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
    """With the time, by which systemd tells this reload from the one before."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def systemd_sockets() -> list[socket.socket]:
    """The sockets systemd passed (socket activation). The variables are removed: they are not for our children."""
    meant = os.environ.pop("LISTEN_PID", "")
    count = os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if meant != str(os.getpid()) or not count.isdecimal():
        return []
    found = []
    for fd in range(SD_LISTEN_FDS_START, SD_LISTEN_FDS_START + int(count)):
        with suppress(OSError):
            os.set_inheritable(fd, False)
            found.append(socket.socket(fileno=fd))
    return found
