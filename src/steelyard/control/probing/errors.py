"""Why a question to a replica got no answer. Each says in words what was seen; who asks adds what was asked."""

from __future__ import annotations

import errno
import socket
import ssl

from ...addresses import Address
from ...core.errors import SteelyardError

# Lack of something of this machine's: it tells nothing of the replica.
OURS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
NOBODY = {errno.ECONNREFUSED, errno.ENOENT}
CUT_OFF = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED}


class AskError(SteelyardError):
    """No answer."""

    reason = "no_answer"


class RefusedError(AskError):
    """Nobody listens there: the process is gone, or not there yet."""

    reason = "refused"


class SilentError(AskError):
    """No answer in time."""

    reason = "silent"


class NonsenseError(AskError):
    """What came is no answer: not HTTP, too long, or cut off."""

    reason = "nonsense"


class UnreachableError(AskError):
    """There is no way to it: no such name, no route, no trust in its certificate."""

    reason = "unreachable"


class CannotAskError(AskError):
    """This machine or its configuration does not allow to ask: nothing was learned about the replica."""

    reason = "cannot_ask"


def told(problem: Exception, address: Address) -> AskError:
    """What stands behind an exception of the loop, the resolver, the kernel or OpenSSL."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return UnreachableError(f"its certificate is not trusted: {problem.verify_message}")
    if isinstance(problem, ssl.SSLError):
        return NonsenseError(f"no TLS with it: {problem.reason or problem}")
    if isinstance(problem, socket.gaierror):
        return UnreachableError(f"{address.host}: {problem.strerror or problem}")
    if isinstance(problem, TimeoutError):  # the kernel's own, after many SYNs
        return SilentError("takes no connection")
    if isinstance(problem, OSError):
        return _refusal(problem, address)
    return UnreachableError(f"{type(problem).__name__}: {problem}")  # UnicodeError of a host name


def _refusal(problem: OSError, address: Address) -> AskError:
    number = problem.errno
    # Of several addresses of a name each may have failed in its own way: then there is only a text.
    if number in NOBODY or (number is None and "refused" in str(problem)):
        return RefusedError("there is no socket" if number == errno.ENOENT else "refuses connections")
    if number in OURS:
        return CannotAskError(f"this machine cannot ask: {problem.strerror}")
    if number == errno.EAGAIN and address.path:  # its queue of connections is full
        return SilentError("takes no connection")
    if number in CUT_OFF:
        return NonsenseError("hangs up")
    return UnreachableError(problem.strerror or str(problem))
