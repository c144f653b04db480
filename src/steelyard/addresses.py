"""Addresses: `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/model.sock`, `https://host`."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

import msgspec

_HOST_PORT = re.compile(r"(?:\[(?P<six>[^\[\]\s]+)\]|(?P<host>[^:\[\]/\s]*)):(?P<port>[0-9]{1,5})")
_URL = re.compile(r"(?P<scheme>https?)://(?P<place>[^/?#\s]*)(?P<rest>.*)", re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
DEFAULT_ADMIN_PORT = 9080
DEFAULT_PORTS = {"http": 80, "https": 443}
WILDCARD_HOSTS = ("", "0.0.0.0", "::")
_IPV4_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
MAX_UNIX_PATH_BYTES = 107  # the kernel's limit


class Address(msgspec.Struct, frozen=True):
    """A TCP host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""
    tls: bool = False

    @property
    def is_loopback(self) -> bool:
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(unmapped_host(self.host.partition("%")[0])).is_loopback
        except ValueError:
            return False

    def reaches(self, listener: Address) -> bool:
        """Does a connection to this address end at the listener? Names are not resolved."""
        if self.path or listener.path:
            return self.path == listener.path
        if self.port != listener.port:
            return False
        mine, its = (unmapped_host(host).lower().removesuffix(".") for host in (self.host, listener.host))
        if its in WILDCARD_HOSTS:
            return self.is_loopback or mine in WILDCARD_HOSTS
        return mine == its or {mine, its} in ({"localhost", "127.0.0.1"}, {"localhost", "::1"})

    @property
    def authority(self) -> str:
        """For a Host header, without the zone of a link-local address (RFC 6874)."""
        return "localhost" if self.path else _joined(self.host.partition("%")[0], self.port)

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else _joined(self.host, self.port)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unmapped_host(host: str) -> str:
    """The IPv4 address inside an IPv6 one (`::ffff:127.0.0.1`), as the kernel connects it."""
    if ":" not in host or "%" in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def unmapped_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """The same for a network. Raises ValueError."""
    network = ipaddress.ip_network(text)
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_IPV4_MAPPED):
        inside = network.network_address.ipv4_mapped
        return ipaddress.IPv4Network((str(inside), network.prefixlen - 96))
    return network


def listen_address(text: str, usual_port: int = 8080) -> Address:
    """`HOST:PORT`, `[V6]:PORT`, `:PORT` (every address) or `unix:/path`. `usual_port`: for the examples of errors."""
    if text.startswith("unix:"):
        return _unix_address(text)
    match = _HOST_PORT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an address: {_hint(text, usual_port)}")
    return _tcp_address(text, match, least_port=0)


def _hint(text: str, port: int) -> str:
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,5}", text):
        return f"write 127.0.0.1:{text}, or :{text} for every address"
    if re.match(r"https?://", text):
        return "leave out what is before and after host and port"
    if text.count(":") > 1:
        return f"write an IPv6 address in brackets, for example [::1]:{port}"
    if is_host(text):
        return f"the port is missing, write for example {text}:{port}"
    return f"write for example 127.0.0.1:{port}, [::1]:{port} or unix:/run/steelyard.sock"


@lru_cache(maxsize=4096)  # names of replicas are made of it
def replica_address(url: str) -> Address:
    """`http://host:port`, `https://host`, `unix:/path`."""
    if url.startswith("unix:"):
        return _unix_address(url)
    match, wrong = _URL.fullmatch(url.strip()), f"{url!r} is not the URL of a replica: write"
    if match is None:
        wanted = f"http://{url}" if _HOST_PORT.fullmatch(url) or is_host(url) else "for example http://10.0.0.1:8000"
        raise ValueError(f"{wrong} {wanted}")
    place, rest, scheme = match["place"], match["rest"], match["scheme"].lower()
    if "@" in place:
        raise ValueError("a replica's URL carries no user and no password: leave them to the clients")
    if rest not in ("", "/"):
        raise ValueError(f"{url!r}: leave out {rest!r}, because requests keep the path they came with")
    if not re.search(r":[0-9]*$", place) or place.endswith("]"):
        place = f"{place}:{DEFAULT_PORTS[scheme]}"
    found = _HOST_PORT.fullmatch(place)
    if found is None:
        raise ValueError(f"{wrong} for example {scheme}://10.0.0.1:8000 or {scheme}://[::1]:8000")
    return _tcp_address(url, found, tls=scheme == "https", need_host=True)


def is_host(text: str) -> bool:
    """A host name or an IPv4 address, by its form."""
    if re.fullmatch(r"[0-9.]+", text):
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            return False
        return True
    return len(text) <= 253 and all(map(_LABEL.fullmatch, text.removesuffix(".").split(".")))


def _tcp_address(
    text: str, match: re.Match[str], *, tls: bool = False, least_port: int = 1, need_host: bool = False
) -> Address:
    port = int(match["port"])
    if not least_port <= port <= 65535:
        raise ValueError(f"{text!r}: a port is from {least_port} to 65535")
    host = match["six"] or match["host"] or ""
    if match["six"]:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"{text!r}: {host!r} is not an IPv6 address") from None
    elif host and not is_host(host):
        raise ValueError(f"{text!r}: {host!r} is neither a host name nor an IP address")
    elif need_host and not host:
        raise ValueError(f"{text!r}: the host is missing")
    return Address(host, port, tls=tls)


def _unix_address(text: str) -> Address:
    path = text.removeprefix("unix:").removeprefix("//")
    if not path.startswith("/"):
        raise ValueError(f"{text!r}: write the whole path of the socket, for example unix:/run/model.sock")
    if not path.isprintable():
        raise ValueError(f"{text!r}: the path of a socket has no control characters")
    if len(path.encode()) > MAX_UNIX_PATH_BYTES:
        raise ValueError(f"{text!r}: the path of a Unix socket has at most {MAX_UNIX_PATH_BYTES} bytes")
    return Address(path=path)
