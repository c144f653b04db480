"""What a client may say of its own requests, by the address of its peer:

- A peer in `trusted_proxies` is believed: the tenant it names counts, and it may allow more than `timeout`.
- A peer in the `networks` of a tenant is that tenant, whatever it says.
- The tenant that any other peer names is a label for logs and counts. In the queue all requests of its address (of
  IPv6, its /64) count as one tenant: made-up names earn no turns, and take none of another's.

Each tenant has a ceiling for priorities, 0 unless configured; an unverified peer has 0. Sessions of different tenants
are different sessions.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from ...addresses import unmapped_network
from ...config import ANY_MODEL, Config
from ..http.forwarding import TrustedNetworks, client_network

UNVERIFIED_PREFIX = "\0"  # no header can carry it


class ClientIdentity:
    __slots__ = ("share", "tenant", "trusted")

    def __init__(self, tenant: str = "", share: str = "", believed: bool = False) -> None:
        self.tenant = tenant  # empty: a request may say
        self.share = share  # fair share key of its requests, unless a tenant is believed
        self.trusted = believed


ANONYMOUS = ClientIdentity()


def session_key(share: str, session: str) -> str:
    """Unverified peers share theirs: one may change its address."""
    return f"{UNVERIFIED_PREFIX if share.startswith(UNVERIFIED_PREFIX) else share}{UNVERIFIED_PREFIX}{session}"


class TrustPolicy:
    def __init__(self, config: Config) -> None:
        self._trust = TrustedNetworks(config.trusted_proxies)
        self._ceilings = {name: tenant.max_priority for name, tenant in config.tenants.items()}
        self._default_ceiling = self._ceilings.pop(ANY_MODEL, 0)
        self.lowest_ceiling = min(0, self._default_ceiling, *self._ceilings.values())  # no more needs no check
        self._per_client_queues = bool(config.tenant_header or config.tenants)
        networks = [
            (unmapped_network(text), name) for name, tenant in config.tenants.items() for text in tenant.networks
        ]
        self._networks: list[tuple[IPv4Network | IPv6Network, str]] = sorted(networks, key=lambda n: -n[0].prefixlen)

    def identify(self, host: str) -> ClientIdentity:
        if self._trust.contains(host):
            return ClientIdentity(believed=True)
        if not self._per_client_queues:
            return ANONYMOUS
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return ClientIdentity(share=UNVERIFIED_PREFIX + host)  # a Unix socket
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        for network, tenant in self._networks:
            if address in network:
                return ClientIdentity(tenant, tenant)
        return ClientIdentity(share=UNVERIFIED_PREFIX + client_network(host))

    def ceiling(self, rights: ClientIdentity, tenant: str) -> int:
        if rights.trusted or rights.tenant:
            return self._ceilings.get(tenant, self._default_ceiling)
        return 0
