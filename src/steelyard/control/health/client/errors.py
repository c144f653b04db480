"""Why a request to a replica got no response. The caller adds the request to the message."""

from __future__ import annotations

import errno
import socket
import ssl

from ....addresses import Address
from ....core.errors import SteelyardError
from ....system import LOCAL_ERRNOS, NOT_LISTENING_ERRNOS

RESET_ERRNOS = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED}


class ReplicaRequestError(SteelyardError):
    """No response."""


class ConnectRefusedError(ReplicaRequestError):
    """No process listens: it is gone, or not there yet."""


class ResponseTimeoutError(ReplicaRequestError):
    """No response in time."""


class InvalidResponseError(ReplicaRequestError):
    """Not HTTP, too long, or cut off."""


class ReplicaUnreachableError(ReplicaRequestError):
    """No such name, no route, or an untrusted certificate."""


class LocalFailureError(ReplicaRequestError):
    """This machine or its configuration cannot send the request: nothing was learned about the replica."""


def classify_error(error: Exception, address: Address) -> ReplicaRequestError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ReplicaUnreachableError(f"its certificate is not trusted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return InvalidResponseError(f"no TLS with it: {error.reason or error}")
    if isinstance(error, socket.gaierror):
        return ReplicaUnreachableError(f"{address.host}: {error.strerror or error}")
    if isinstance(error, TimeoutError):  # the kernel's own, after many SYNs
        return ResponseTimeoutError("takes no connection")
    if isinstance(error, OSError):
        return _classify_os_error(error, address)
    return ReplicaUnreachableError(f"{type(error).__name__}: {error}")  # UnicodeError of a host name


def _classify_os_error(error: OSError, address: Address) -> ReplicaRequestError:
    number = error.errno
    # Where a name has several addresses, asyncio joins their errors into a text.
    if number in NOT_LISTENING_ERRNOS or (number is None and "refused" in str(error)):
        return ConnectRefusedError("there is no socket" if number == errno.ENOENT else "refuses connections")
    if number in LOCAL_ERRNOS:
        return LocalFailureError(f"this machine cannot ask: {error.strerror}")
    if number == errno.EAGAIN and address.path:  # its accept queue is full
        return ResponseTimeoutError("takes no connection")
    if number in RESET_ERRNOS:
        return InvalidResponseError("hangs up")
    return ReplicaUnreachableError(error.strerror or str(error))
