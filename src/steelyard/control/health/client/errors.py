"""Why a question to a replica got no answer. Each says in words what was seen; who asks adds what was asked."""

from __future__ import annotations

import errno
import socket
import ssl

from ....addresses import Address
from ....core.errors import SteelyardError
from ....system import LOCAL_ERRNOS, NOT_LISTENING_ERRNOS

RESET_ERRNOS = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED}


class ReplicaRequestError(SteelyardError):
    """No answer."""

    reason = "no_answer"


class ConnectRefusedError(ReplicaRequestError):
    """Nobody listens there: the process is gone, or not there yet."""

    reason = "refused"


class ResponseTimeoutError(ReplicaRequestError):
    """No answer in time."""

    reason = "silent"


class InvalidResponseError(ReplicaRequestError):
    """What came is no answer: not HTTP, too long, or cut off."""

    reason = "nonsense"


class ReplicaUnreachableError(ReplicaRequestError):
    """There is no way to it: no such name, no route, no trust in its certificate."""

    reason = "unreachable"


class LocalFailureError(ReplicaRequestError):
    """This machine or its configuration does not allow to ask: nothing was learned about the replica."""

    reason = "cannot_ask"


def classify_error(problem: Exception, address: Address) -> ReplicaRequestError:
    """What stands behind an exception of the loop, the resolver, the kernel or OpenSSL."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return ReplicaUnreachableError(f"its certificate is not trusted: {problem.verify_message}")
    if isinstance(problem, ssl.SSLError):
        return InvalidResponseError(f"no TLS with it: {problem.reason or problem}")
    if isinstance(problem, socket.gaierror):
        return ReplicaUnreachableError(f"{address.host}: {problem.strerror or problem}")
    if isinstance(problem, TimeoutError):  # the kernel's own, after many SYNs
        return ResponseTimeoutError("takes no connection")
    if isinstance(problem, OSError):
        return _classify_os_error(problem, address)
    return ReplicaUnreachableError(f"{type(problem).__name__}: {problem}")  # UnicodeError of a host name


def _classify_os_error(problem: OSError, address: Address) -> ReplicaRequestError:
    number = problem.errno
    # Of several addresses of a name each may have failed in its own way: then there is only a text.
    if number in NOT_LISTENING_ERRNOS or (number is None and "refused" in str(problem)):
        return ConnectRefusedError("there is no socket" if number == errno.ENOENT else "refuses connections")
    if number in LOCAL_ERRNOS:
        return LocalFailureError(f"this machine cannot ask: {problem.strerror}")
    if number == errno.EAGAIN and address.path:  # its queue of connections is full
        return ResponseTimeoutError("takes no connection")
    if number in RESET_ERRNOS:
        return InvalidResponseError("hangs up")
    return ReplicaUnreachableError(problem.strerror or str(problem))
