from __future__ import annotations

import gc
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.addresses import Address, listen_address
from steelyard.control.errors import ListenError
from steelyard.control.listeners.listeners import ListenerSockets


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_of_other_tests() -> None:
    """Or it would be closed while we count."""
    gc.collect()


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() == before


def connects(address: Address, host: str = "") -> bool:
    family = socket.AF_UNIX if address.path else socket.AF_INET6 if ":" in (host or address.host) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client:
        return client.connect_ex(address.path or (host or address.host, address.port)) == 0


def family_of(fd: int) -> int:
    with socket.socket(fileno=os.dup(fd)) as one:
        return one.family


def test_each_worker_has_a_socket_of_its_own_on_the_same_port() -> None:
    listening = ListenerSockets([listen_address("127.0.0.1:0")])
    (address,) = listening.addresses
    assert address.port > 0
    first, second = listening.open(0), listening.open(1)
    assert len(first) == len(second) == 1
    assert first != second
    assert listening.open(0) == first
    listening.close(0)
    assert connects(address)  # the other one's
    listening.close(1)
    assert not connects(address)
    assert len(listening.open(1)) == 1  # the port is still known
    assert connects(address)
    listening.close_all()
    assert not connects(address)


def test_fewer_workers_have_the_sockets_of_those_that_leave() -> None:
    """Nobody who waits there is reset, and with more workers again they are the own sockets of the new ones."""
    listening = ListenerSockets([listen_address("127.0.0.1:0")])
    own = [listening.open(worker, 3)[0] for worker in range(3)]
    assert not any(map(listening.is_shared, range(3)))
    assert listening.open(0, 1) == (own[0], own[1], own[2])
    assert [listening.is_shared(worker) for worker in range(3)] == [False, True, True]
    assert [listening.open(worker, 2) for worker in range(2)] == [(own[0], own[2]), (own[1], own[2])]
    assert [listening.open(worker, 3) for worker in range(3)] == [(own[0],), (own[1],), (own[2],)]
    listening.close(2)
    assert not listening.is_shared(2)
    listening.close_all()


def test_connections_wait_where_no_worker_is() -> None:
    listening = ListenerSockets([listen_address("127.0.0.1:0")])
    assert all(connects(listening.addresses[0]) for _ in range(20))
    listening.close_all()


def test_several_addresses_and_a_name_that_is_several() -> None:
    listening = ListenerSockets([listen_address("localhost:0"), listen_address("127.0.0.1:0")])
    first, second = listening.addresses
    assert first.port != second.port
    assert connects(first, "127.0.0.1")
    families = {info[0] for info in socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)}
    assert len(listening.open(0)) == len(listening.open(1)) == len(families) + 1
    listening.close_all()


needs_six = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 on this machine")


@needs_six
def test_six_is_six_only() -> None:
    listening = ListenerSockets([listen_address("[::]:0")])
    address = listening.addresses[0]
    assert connects(address, "::1")
    assert not connects(address, "127.0.0.1")
    four = ListenerSockets([listen_address(f"0.0.0.0:{address.port}")])  # so the two go side by side
    assert connects(address, "127.0.0.1")
    four.close_all()
    listening.close_all()


@needs_six
def test_no_host_is_every_address() -> None:
    listening = ListenerSockets([listen_address(":0")])
    assert connects(listening.addresses[0], "::1")
    assert connects(listening.addresses[0], "127.0.0.1")
    assert family_of(listening.open(0)[0]) == socket.AF_INET6
    listening.close_all()


@pytest.mark.parametrize("option", [None, socket.SO_REUSEPORT])
def test_an_address_in_use_is_one_sentence(option: int | None) -> None:
    """Also if the other is a gateway too: the kernel would let the two share the traffic."""
    with socket.socket() as other:
        if option is not None:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(
            ListenError, match=f"cannot listen on 127.0.0.1:{port}: the address is in use already"
        ) as caught:
            ListenerSockets([listen_address("127.0.0.1:0"), listen_address(f"127.0.0.1:{port}")])
        assert f"sport = :{port}" in str(caught.value)


def test_unless_it_may_be_shared() -> None:
    old = ListenerSockets([listen_address("127.0.0.1:0")])
    new = ListenerSockets(old.addresses, shared=frozenset(old.addresses))
    old.close_all()
    assert connects(new.addresses[0])
    new.close_all()


def test_closed_connections_do_not_keep_an_address_in_use() -> None:
    listening = ListenerSockets([listen_address("127.0.0.1:0")])
    (address,) = listening.addresses
    with (
        socket.socket(fileno=os.dup(listening.open(0)[0])) as ours,
        socket.create_connection((address.host, address.port)),
    ):
        ours.setblocking(True)
        ours.accept()[0].close()  # first, so the TIME_WAIT is on this side
    listening.close_all()
    ListenerSockets([address]).close_all()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("192.0.2.1:8080", "this machine has no such address"),
        ("no-such-host.invalid:8080", "'no-such-host.invalid' is no host that is known here"),
    ],
)
def test_addresses_that_cannot_be(text: str, what: str) -> None:
    with pytest.raises(ListenError, match=f"cannot listen on {text}: {what}"):
        ListenerSockets([listen_address(text)])


def test_a_privileged_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, where: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ListenError, match="ports below 1024 are for root, or need CAP_NET_BIND_SERVICE"):
        ListenerSockets([listen_address("127.0.0.1:80")])


# ---------------------------------------------------------------------- Unix sockets


def unix(path: Path) -> Address:
    return listen_address(f"unix:{path}")


def test_a_unix_socket_is_one_for_all_and_private(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listening = ListenerSockets([unix(path)])
    assert listening.open(0) == listening.open(1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listening.close(0)
    listening.close(1)
    assert connects(listening.addresses[0])
    listening.close_all()
    assert not path.exists()


def test_a_socket_that_nobody_listens_on_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listening = ListenerSockets([unix(path)])
    assert connects(listening.addresses[0])
    listening.close_all()


def test_one_that_is_listened_on_is_not(tmp_path: Path) -> None:
    first = ListenerSockets([unix(tmp_path / "s")])
    with pytest.raises(ListenError, match="another process listens there already"):
        ListenerSockets(first.addresses)
    assert connects(first.addresses[0])
    second = ListenerSockets(first.addresses, shared=frozenset(first.addresses))
    first.close_all()  # leaves the other's alone
    assert connects(second.addresses[0])
    second.close_all()


def test_nor_is_any_other_file(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("precious")
    with pytest.raises(ListenError, match="there is a file of that name, and it is no socket"):
        ListenerSockets([unix(tmp_path / "s")])
    assert (tmp_path / "s").read_text() == "precious"


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match=f"there is no directory {tmp_path}/no"):
        ListenerSockets([unix(tmp_path / "no" / "s")])
