"""Access to the admin API: by token or, without tokens, from this machine except from web pages."""

from __future__ import annotations

import hmac
import logging
from ipaddress import ip_address

from starlette.datastructures import Headers

from ....addresses import Address, unmapped_host
from ....config import AdminConfig
from ....config.secret_files import read_tokens
from ....core.errors import SteelyardError
from ...file_watcher import file_stamp
from .. import pages
from ..errors import ApiError

PUBLIC_PATHS = ("/healthz", "/readyz")  # probes often have no token
_CHALLENGE = {"www-authenticate": "Bearer"}

log = logging.getLogger("steelyard.admin")


class AccessError(SteelyardError):
    """The admin API would be open to every host, or to none."""

    reason = "admin_access"


class TokenFile:
    """Bearer tokens, one a line, read again on a change. If that fails, the last good tokens stay."""

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


class AccessControl:
    def __init__(self, address: Address, admin: AdminConfig) -> None:
        """Raises AccessError if everybody could use it."""
        self._tokens = TokenFile(admin.token_file) if admin.token_file else None
        if self._tokens is None and not address.is_loopback:
            what = "other machines can reach it: give it an admin.token_file, or listen on 127.0.0.1"
            raise AccessError(f"the admin API on {address} needs a token, because {what}")
        self._local = self._tokens is None and not address.path

    @property
    def needs_token(self) -> bool:
        return self._tokens is not None

    def check(self, path: str, headers: Headers, method: str = "GET") -> None:
        """Raises ApiError. Without tokens, any page in a browser on this machine could send requests."""
        if self._local:
            _check_host(headers)
            _check_origin(headers)
            _check_site(headers, link=method in ("GET", "HEAD"))
        if self._tokens is not None and not self.is_public(path):
            _check_token(headers, self._tokens)

    @staticmethod
    def is_public(path: str) -> bool:
        return path in PUBLIC_PATHS or path in pages.files()


def _check_host(headers: Headers) -> None:
    """Against DNS rebinding: a page's own host name may resolve to this machine."""
    for host in headers.getlist("host"):  # none, in HTTP/1.0: no browser asks like that
        if not is_local(host):
            how = "ask by 127.0.0.1, [::1] or localhost, or set admin.token_file"
            raise ApiError(403, f"the host {host!r} is not this machine: {how}")


def _check_origin(headers: Headers) -> None:
    """Against CSRF: another page may send requests here, though it cannot read the responses."""
    own = [f"http://{host}".lower() for host in headers.getlist("host")]
    for origin in headers.getlist("origin"):
        if origin.lower() not in own:
            raise ApiError(403, f"the page {origin!r} is not ours: requests of other web pages are not taken")


def _check_site(headers: Headers, *, link: bool) -> None:
    """What another page embeds has no Origin header. Its links may lead here, its forms may not."""
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode")
    link = link and mode == "navigate" and headers.get("sec-fetch-dest") == "document"
    if site not in ("same-origin", "none") and not link:
        raise ApiError(403, "another web page asked for this: requests of other web pages are not taken")


def is_local(host: str) -> bool:
    """A Host header that names this machine, whatever the port."""
    name, _, port = host.rpartition(":")
    if not port.isdecimal() or not port.isascii():
        name = host
    name = name.lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(unmapped_host(name.removeprefix("[").removesuffix("]"))).is_loopback
    except ValueError:
        return False


def _check_token(headers: Headers, tokens: TokenFile) -> None:
    given = headers.getlist("authorization")
    scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
    if scheme.lower() != "bearer":
        raise ApiError(401, "send `authorization: Bearer TOKEN` with a token of admin.token_file", headers=_CHALLENGE)
    if not tokens.knows(token.strip().encode("latin-1")):
        raise ApiError(401, "this token is not in admin.token_file", headers=_CHALLENGE)
