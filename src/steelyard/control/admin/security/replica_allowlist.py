"""Which replicas may be added or registered over the network. The configuration may name any."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from ....addresses import is_host, replica_address, unmapped_network
from ....config import AdminConfig
from ....core.errors import OptionError
from ...address_guard import forbidden_reason

_MAX_URL_CHARACTERS = 512  # more than any address
_PORT_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as a last label: resolvers read such a name as an IPv4 address

# Names by which clouds serve their metadata, for an allow-list with `*`.
_METADATA_HOSTS = (
    "metadata.google.internal",
    "metadata.goog",
    "metadata",
    "instance-data",
    "instance-data.ec2.internal",
)


class ReplicaAllowlist:
    """Names are not resolved: allowing one trusts every address it ever has."""

    def __init__(self, admin: AdminConfig) -> None:
        """Raises OptionError for a network, name or port that cannot be."""
        self._shown = ", ".join(admin.allowed_replicas) or "nothing"
        self._ports = [_ports(f"admin.allowed_ports[{place}]", text) for place, text in enumerate(admin.allowed_ports)]
        self._ports_shown = ", ".join(admin.allowed_ports) or "none"
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        for place, text in enumerate(admin.allowed_replicas):
            self._allow(f"admin.allowed_replicas[{place}]", text)

    def refusal(self, url: str) -> str:
        """Why a replica may not be there, and what to do; empty: it may."""
        if len(url) > _MAX_URL_CHARACTERS:
            return f"a replica's URL has at most {_MAX_URL_CHARACTERS} characters"
        try:
            address = replica_address(url)
        except ValueError as problem:
            return str(problem)
        if url != url.strip():
            return "leave out the spaces around it"
        if address.path:
            return "a Unix socket cannot be added here: name it in the configuration file"
        return self._host_refusal(address.host) or self._port_refusal(address.port)

    def _host_refusal(self, host: str) -> str:
        try:
            numeric = ip_address(host)
        except ValueError:
            return self._name_refusal(host)
        if isinstance(numeric, IPv6Address) and numeric.scope_id is not None:
            return f"{host}: an address with a zone means something else on every machine: write it without"
        plain = _unmap(numeric)
        if reason := forbidden_reason(numeric):
            return f"{host}: {reason}; such addresses are never taken"
        if any(plain in network for network in self._networks):
            return ""
        return f"{host} is not in a network that admin.allowed_replicas names ({self._shown}): add one there"

    def _name_refusal(self, host: str) -> str:
        name = host.lower().removesuffix(".")
        if _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
            return f"{host!r} is a number in disguise: write an address as 10.0.0.1"
        if name in _METADATA_HOSTS:
            return f"{host!r} is where clouds keep their metadata; such names are never taken"
        if name in self._names or name.endswith(tuple(self._suffixes)):
            return ""
        known = f"is not one that admin.allowed_replicas names ({self._shown})"
        return f"the name {host!r} {known}: give the address, or add it there"

    def _port_refusal(self, port: int) -> str:
        if any(port in ports for ports in self._ports):
            return ""
        return f"the port {port} is not one that admin.allowed_ports names ({self._ports_shown}): add it there"

    def _allow(self, key: str, text: str) -> None:
        try:
            self._networks.append(unmapped_network(text))
            return
        except ValueError:
            name = text.lower().removesuffix(".")
        bare = name.removeprefix("*.")
        if not is_host(bare):
            raise OptionError(f"{key}: {text!r} is neither a network nor a host name")
        if bare != name:
            self._suffixes.append(f".{bare}")
        else:
            self._names.add(name)


def _unmap(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The kernel connects `::ffff:10.0.0.1` to 10.0.0.1."""
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def _ports(key: str, text: str) -> range:
    match = _PORT_RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= 65535:
        raise OptionError(f"{key}: {text!r} is neither a port nor a range of them")
    return range(first, last + 1)
