"""Addresses never accepted for a replica: the gateway could be made to read keys from a cloud's metadata service."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_FORBIDDEN_V4 = {
    IPv4Network("169.254.0.0/16"): "a link-local address, where clouds keep their metadata",
    IPv4Network("100.100.100.200/32"): "the metadata service of Alibaba Cloud",
    IPv4Network("192.0.0.192/32"): "the metadata service of Oracle Cloud",
    IPv4Network("168.63.129.16/32"): "the wire server of Azure",
    IPv4Network("224.0.0.0/4"): "a multicast address",
    IPv4Network("255.255.255.255/32"): "the broadcast address",
    IPv4Network("0.0.0.0/8"): "an unspecified address",
}
# Networks of one address: an address with a scope (`%eth0`) would not be equal to one without.
_FORBIDDEN_V6 = {
    IPv6Network("fe80::/10"): "a link-local address",
    IPv6Network("fd00:ec2::254/128"): "the metadata service of AWS",
    IPv6Network("fd20:ce::254/128"): "the metadata service of Google Cloud",
    IPv6Network("ff00::/8"): "a multicast address",
    IPv6Network("::/128"): "an unspecified address",
}
_LOOPBACK = IPv6Network("::1/128")

# IPv4 inside IPv6: how many bits follow it.
_EMBEDDED_V4 = (
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped, RFC 4291
    (IPv6Network("::/96"), 0),  # IPv4-compatible, RFC 4291
    (IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated, RFC 2765
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64, RFC 6052
    (IPv6Network("2002::/16"), 80),  # 6to4, RFC 3056
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")  # RFC 8215
_TEREDO = IPv6Network("2001::/32")


def forbidden_reason(address: IPv4Address | IPv6Address) -> str:
    """Why a replica may not have this address; empty: it may."""
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _FORBIDDEN_V4.items() if address in network), "")
    if reason := next((reason for network, reason in _FORBIDDEN_V6.items() if address in network), ""):
        return reason
    if address in _LOOPBACK:
        return ""
    for inside in _embedded_addresses(address):
        if reason := forbidden_reason(inside):
            return f"{inside} in another form, which is {reason}"
    return ""


def _embedded_addresses(address: IPv6Address) -> list[IPv4Address]:
    number = int(address)
    found = [IPv4Address(number >> shift & 0xFFFFFFFF) for network, shift in _EMBEDDED_V4 if address in network]
    if address in _LOCAL_NAT64:  # a prefix of 96 bits, or of 48, which skips bits 64 to 71; the other reads as zeros
        readings = (number & 0xFFFFFFFF, (number >> 64 & 0xFFFF) << 16 | number >> 40 & 0xFFFF)
        found += [IPv4Address(reading) for reading in readings if reading]
    if address in _TEREDO:  # RFC 4380: the client's address, inverted
        found.append(IPv4Address(~number & 0xFFFFFFFF))
    return found
