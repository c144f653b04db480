"""Errors of the supervisor at start or on an operation. Each is one sentence for the operator."""

from __future__ import annotations

import errno
from pathlib import Path

from ..addresses import Address
from ..core.errors import SteelyardError

# This machine has no such address. Of the addresses of a host name, one that it has is enough.
ADDRESS_ABSENT_ERRNOS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)


class ListenError(SteelyardError):
    """An address cannot be listened on."""

    reason = "cannot_listen"


class StartError(SteelyardError):
    """No worker came up."""

    reason = "cannot_start"


class TakeOverError(SteelyardError):
    """A running gateway is not taken over; it goes on."""

    reason = "cannot_take_over"


class SharedMemoryFullError(SteelyardError):
    """More replicas or processes than the shared memory ledger has room for."""

    reason = "shared_memory_full"


class NotFoundError(SteelyardError):
    """No such model or replica."""

    reason = "not_found"


class ConflictError(SteelyardError):
    """It cannot be done to this replica, or not now."""

    reason = "conflict"


class InvalidError(SteelyardError):
    """An invalid value; `key` is its path in what was sent."""

    reason = "invalid"

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.key = key
        self.what = what


def listen_error(address: Address, problem: OSError) -> ListenError:
    reason = _unix_problem(address, problem) if address.path else _tcp_problem(address, problem)
    return ListenError(f"cannot listen on {address}: {reason}")


def _unix_problem(address: Address, problem: OSError) -> str:
    directory = Path(address.path).parent
    match problem.errno:
        case errno.EADDRINUSE:
            return f"another process listens there already; `ss -lxp src {address.path}` shows which"
        case errno.EEXIST:
            return "there is a file of that name, and it is no socket"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"no permission to make a socket in {directory}"
        case errno.ENOENT | errno.ENOTDIR:
            return f"there is no directory {directory}"
    return problem.strerror or str(problem)


def _tcp_problem(address: Address, problem: OSError) -> str:
    match problem.errno:
        case errno.EADDRINUSE:
            how = f"`ss -ltnp 'sport = :{address.port}'` shows the process"
            return f"the address is in use already; {how}; choose another, or replace a running gateway: --take-over"
        case errno.EACCES | errno.EPERM if address.port < 1024:
            return "ports below 1024 are for root, or need CAP_NET_BIND_SERVICE; choose one above"
        case number if number in ADDRESS_ABSENT_ERRNOS:
            return "this machine has no such address; 0.0.0.0 and [::] stand for all it has"
    return problem.strerror or str(problem)
