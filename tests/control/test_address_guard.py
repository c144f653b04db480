from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.control.address_guard import forbidden_reason

NEVER = [
    "169.254.169.254",
    "169.254.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "224.0.0.1",
    "239.255.255.255",
    "255.255.255.255",
    "0.0.0.0",
    "0.1.2.3",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "febf::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd00:ec2::254%1",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "::ffff:0:a9fe:a9fe",
    "::a9fe:a9fe",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "64:ff9b:1:a9fe:a9:fe00::",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:5601:5601",  # Teredo: ~5601:5601 is a9fe:a9fe
    "::ffff:0.0.0.0",
    "::ffff:224.0.0.1",
    "::ffff:100.100.100.200",
]
ALLOWED = [
    "10.0.0.1",
    "127.0.0.1",
    "192.168.1.7",
    "100.64.0.1",
    "8.8.8.8",
    "::1",
    "fd00::1",
    "fd00:ec2::253",
    "2001:db8::1",
    "2606:4700::1111",
    "::ffff:10.0.0.1",
    "64:ff9b::a00:1",
    "64:ff9b:1::a00:1",
    "64:ff9b:1:a00:0:100::",
    "2002:a00:1::1",
]


@pytest.mark.parametrize("address", NEVER)
def test_never(address: str) -> None:
    reason = forbidden_reason(ip_address(address))
    assert reason
    assert "\n" not in reason


@pytest.mark.parametrize("address", ALLOWED)
def test_allowed(address: str) -> None:
    assert forbidden_reason(ip_address(address)) == ""


def test_why_in_words() -> None:
    assert forbidden_reason(ip_address("fe80::1")) == "a link-local address"
    assert forbidden_reason(ip_address("::ffff:224.0.0.1")) == "224.0.0.1 in another form, which is a multicast address"


@given(st.integers(0, (1 << 32) - 1))
def test_no_form_of_an_address_hides_it(number: int) -> None:
    plain = forbidden_reason(IPv4Address(number))
    forms = [0xFFFF << 32, 0xFFFF << 48, 0x64FF9B << 96]
    hidden = [form | number for form in forms] + [0x2002 << 112 | number << 80, 0x20010000 << 96 | number ^ 0xFFFFFFFF]
    assert {bool(forbidden_reason(IPv6Address(form))) for form in hidden} == {bool(plain)}


@given(st.integers(0, (1 << 128) - 1))
def test_any_address_has_an_answer(number: int) -> None:
    assert isinstance(forbidden_reason(IPv6Address(number)), str)
