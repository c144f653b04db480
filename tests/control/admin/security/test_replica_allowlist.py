from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.config import AdminConfig
from steelyard.control.admin.security.replica_allowlist import ReplicaAllowlist
from steelyard.core.errors import OptionError

EVERYTHING = ("0.0.0.0/0", "::/0", "*.internal", "*.example", "metadata", "host.example", "*.0x1")
LISTED = ReplicaAllowlist(
    AdminConfig(
        allowed_replicas=("10.0.0.0/8", "fd00::/8", "192.168.1.7", "gpu7.example", "*.models.svc"),
        allowed_ports=("80", "8000-8999"),
    )
)
OPEN = ReplicaAllowlist(AdminConfig(allowed_replicas=EVERYTHING, allowed_ports=("1-65535",)))
CLOSED = ReplicaAllowlist(AdminConfig(allowed_replicas=(), allowed_ports=()))


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:8000",
        "http://10.255.255.255:8999/",
        "https://192.168.1.7:80",
        "http://192.168.1.7",
        "http://[fd00::1]:8000",
        "http://[FD00:0:0::1]:8000",
        "http://[::ffff:10.0.0.1]:8000",
        "http://[::ffff:a00:1]:8000",
        "http://gpu7.example:8000",
        "http://GPU7.Example.:8000",
        "http://a.b.models.svc:8000",
    ],
)
def test_what_the_list_names_may_be_added(url: str) -> None:
    assert LISTED.refusal(url) == ""


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://11.0.0.1:8000", "11.0.0.1 is not in a network that admin.allowed_replicas names (10.0.0.0/8, "),
        ("http://127.0.0.1:8000", "admin.allowed_replicas"),
        ("http://192.168.1.8:8000", "admin.allowed_replicas"),
        ("http://[fc00::1]:8000", "admin.allowed_replicas"),
        ("http://[::1]:8000", "admin.allowed_replicas"),
        ("http://[::ffff:11.0.0.1]:8000", "admin.allowed_replicas"),
        ("http://[::10.0.0.1]:8000", "admin.allowed_replicas"),  # IPv4-compatible: not the address it looks like
        ("http://[2002:a00:1::]:8000", "admin.allowed_replicas"),
        ("http://[fd00::1%lo]:8000", "zone"),
        ("http://10.0.0.1:443", "the port 443 is not one that admin.allowed_ports names (80, 8000-8999)"),
        ("https://10.0.0.1", "the port 443"),
        ("http://10.0.0.1:7999", "the port 7999"),
        ("http://10.0.0.1:9000", "the port 9000"),
        ("http://gpu8.example:8000", "the name 'gpu8.example' is not one that admin.allowed_replicas names"),
        ("http://evil-gpu7.example:8000", "the name"),
        ("http://gpu7.example.evil:8000", "the name"),
        ("http://models.svc:8000", "the name"),
        ("http://evilmodels.svc:8000", "the name"),
        ("http://localhost:8000", "give the address, or add it there"),
        ("unix:/run/model.sock", "name it in the configuration file"),
        ("unix:///run/model.sock", "name it in the configuration file"),
        (" http://10.0.0.1:8000", "spaces"),
        ("http://10.0.0.1:8000\n", "spaces"),
        ("http://user@10.0.0.1:8000", "no user and no password"),
        ("http://10.0.0.1:8000@11.0.0.1:8000", "no user and no password"),
        ("http://10.0.0.1:8000/path", "leave out '/path'"),
        ("http://10.0.0.1:8000?x", "leave out"),
        ("http://10.0.0.1:8000#@11.0.0.1", "leave out"),
        ("http://10.0.0.1:8000\\@11.0.0.1", "no user and no password"),
        ("http://10.0.0.1:0", "a port is from 1"),
        ("http://10.0.0.1:65536", "a port is from 1"),
        ("ftp://10.0.0.1:8000", "is not the URL of a replica"),
        ("10.0.0.1:8000", "write http://10.0.0.1:8000"),
        ("//10.0.0.1:8000", "is not the URL of a replica"),
        ("", "is not the URL of a replica"),
        ("http://" + "a" * 600, "at most 512 characters"),
    ],
)
def test_what_it_does_not_name_may_not(url: str, reason: str) -> None:
    assert reason in LISTED.refusal(url)
    assert CLOSED.refusal(url)


@pytest.mark.parametrize("allowed", [OPEN, LISTED])
@pytest.mark.parametrize(
    "host",
    [
        "2852039166",  # 169.254.169.254 as one number
        "0xa9fea9fe",
        "0xA9FEA9FE.",
        "0251.0376.0251.0376",
        "025177524776",
        "0xa9.0xfe.0xa9.0xfe",
        "169.254.43518",
        "169.0xfea9fe",
        "169.254.169.254.",
        "169.254.169.0xfe",
        "169.254.169.254.0x1",
        "１６９.254.169.254",
        "169。254。169。254",
        "169.254.169.254%00",
        "169.254.169.254%2f",
        "169.254.169.254 ",
        "[169.254.169.254]",
        "[::ffff:169.254.169.254]",
        "[0:0:0:0:0:FFFF:A9FE:A9FE]",
        "[::ffff:169.254.169.254%eth0]",
        "[fe80::1%25eth0]",
        "a.1",
        "a.0x1",
        "1.1.1.1.1",
        "127.1",
        "0",
        "0x0",
        "metadata",
        "Metadata.Google.Internal.",
        "instance-data.ec2.internal",
        "",
        ".",
        "..",
        "*",
        "*.example",
        "host.example:80:80",
        "host..example",
        "host_.example\x00",
        "hⓞst.example",
    ],
)
def test_no_odd_spelling_of_an_address_passes_even_if_all_is_allowed(allowed: ReplicaAllowlist, host: str) -> None:
    assert allowed.refusal(f"http://{host}:8000")
    assert allowed.refusal(f"https://{host}:8000/")


# ---------------------------------------------------------------------- never, whatever is allowed

NEVER_4 = [ip_network(text) for text in ("169.254.0.0/16", "224.0.0.0/4", "0.0.0.0/8", "100.100.100.200/32")]
NEVER_6 = [ip_network(text) for text in ("fe80::/10", "ff00::/8", "::/128", "fd00:ec2::254/128")]


def inside(networks: list[object]) -> st.SearchStrategy[int]:
    return st.one_of([st.integers(int(one[0]), int(one[-1])) for one in networks])  # type: ignore[index]


never_4 = inside(NEVER_4)
never_6 = st.one_of(
    inside(NEVER_6),
    never_4.map(lambda four: 0xFFFF << 32 | four),  # IPv4-mapped
    never_4.map(lambda four: 0x0064FF9B << 96 | four),  # NAT64
    st.builds(lambda four, rest: 0x2002 << 112 | four << 80 | rest, never_4, st.integers(0, (1 << 80) - 1)),  # 6to4
)


def spellings_4(number: int) -> list[str]:
    a, b, c, d = number >> 24, number >> 16 & 255, number >> 8 & 255, number & 255
    return [
        f"{a}.{b}.{c}.{d}",
        f"{a}.{b}.{c}.{d}.",
        f"{a:03}.{b:03}.{c:03}.{d:03}",
        f"{a}.{b}.{number & 0xFFFF}",
        f"{a}.{number & 0xFFFFFF}",
        f"{number}",
        f"{number:#x}",
        f"{number:#X}".replace("0X", "0x"),
        f"0{number:o}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a}.{b}.{c}.{d:#x}",
        f"[::ffff:{a}.{b}.{c}.{d}]",
        f"[{a}.{b}.{c}.{d}]",
        f"user@{a}.{b}.{c}.{d}",
    ]


def spellings_6(number: int) -> list[str]:
    address = IPv6Address(number)
    forms = [str(address), address.exploded, str(address).upper(), f"{address}%eth0", f"{address}%25eth0"]
    forms.append(str(IPv6Address(number >> 32 << 32))[:-1] + str(IPv4Address(number & 0xFFFFFFFF)))
    return [f"[{form}]" for form in forms]


@given(st.one_of(never_4.map(spellings_4), never_6.map(spellings_6)), st.integers(1, 65535))
def test_addresses_of_the_never_list_pass_in_no_spelling(spellings: list[str], port: int) -> None:
    for host in spellings:
        for url in (f"http://{host}:{port}", f"HTTPS://{host}:{port}/", f"http://{host}"):
            assert OPEN.refusal(url), url


@given(st.text(max_size=60))
def test_whatever_is_written_there_it_passes_or_is_explained(text: str) -> None:
    for url in (text, f"http://{text}", f"http://[{text}]:8000", f"http://{text}:8000"):
        assert isinstance(LISTED.refusal(url), str)
        assert CLOSED.refusal(url)


@given(st.integers(0, (1 << 32) - 1))
def test_an_address_passes_only_if_a_network_has_it(number: int) -> None:
    address = IPv4Address(number)
    listed = address in ip_network("10.0.0.0/8") or str(address) == "192.168.1.7"
    assert (LISTED.refusal(f"http://{address}:8000") == "") == listed
    assert (LISTED.refusal(f"http://[::ffff:{address}]:8000") == "") == listed


@pytest.mark.parametrize(
    ("admin", "key"),
    [
        (AdminConfig(allowed_replicas=("::1/128", "10.0.0.1/8")), "admin.allowed_replicas[1]"),
        (AdminConfig(allowed_replicas=("*",)), "admin.allowed_replicas[0]"),
        (AdminConfig(allowed_replicas=("a b",)), "admin.allowed_replicas[0]"),
        (AdminConfig(allowed_ports=("80", "0")), "admin.allowed_ports[1]"),
        (AdminConfig(allowed_ports=("9-8",)), "admin.allowed_ports[0]"),
        (AdminConfig(allowed_ports=("1-65536",)), "admin.allowed_ports[0]"),
        (AdminConfig(allowed_ports=("http",)), "admin.allowed_ports[0]"),
    ],
)
def test_a_list_that_cannot_be_is_refused_with_its_place(admin: AdminConfig, key: str) -> None:
    with pytest.raises(OptionError) as caught:
        ReplicaAllowlist(admin)
    assert str(caught.value).startswith(f"{key}: ")
