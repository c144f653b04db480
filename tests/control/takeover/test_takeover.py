"""A gateway takes over from another: the sockets stay, whoever waits there is served (issue 13, points 11 and 27)."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import pytest

from steelyard.addresses import listen_address
from steelyard.config import Config, ReplicaConfig
from steelyard.control.errors import ListenError, StartError, TakeOverError
from steelyard.control.listeners.inherited import InheritedSockets
from steelyard.control.listeners.listeners import ListenerSockets
from steelyard.control.supervisor.supervisor import Supervisor
from steelyard.control.takeover.control_socket import control_socket_path
from steelyard.control.takeover.fleet_snapshot import restore_snapshot, take_snapshot
from steelyard.core.replica import Event
from steelyard.link.handover import (
    PROTOCOL_VERSION,
    FleetState,
    HandoverError,
    LeaseState,
    TakeOverRefused,
    TakeOverRequest,
    check_peer,
    connect,
    receive,
    send,
)

from ..driving import FAKE, ask, config, is_alive, lines, run, serving, supervised, until


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    run(asyncio.sleep(0))
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd"))
    yield
    gc.collect()  # a shared ledger's memory is given back with its last view
    assert sorted(os.listdir("/proc/self/fd")) == before


def again(supervisor: Supervisor, **more: object) -> Config:
    """The same addresses, for a successor."""
    return config(listen=str(supervisor.addresses[0]), **more)  # type: ignore[arg-type]


def inodes(supervisor: Supervisor) -> list[int]:
    return [os.fstat(one.fileno()).st_ino for one in supervisor.listeners.sockets()]


@pytest.mark.parametrize(("listen", "sizes"), [("127.0.0.1:0", (2, 1)), ("127.0.0.1:0", (1, 2)), ("unix:{}/s", (1, 1))])
def test_a_successor_has_the_same_sockets_and_the_old_one_ends(
    listen: str, sizes: tuple[int, int], tmp_path: Path
) -> None:
    async def work() -> None:
        old = Supervisor(config(workers=sizes[0], listen=listen.format(tmp_path)), command=FAKE)
        await old.start()
        await until(lambda: len(serving(old)) == sizes[0])
        workers, sockets = serving(old), inodes(old)
        async with supervised(again(old, workers=sizes[1]), take_over=True) as new:
            assert set(sockets) <= set(inodes(new))
            assert old.superseded.is_set()
            assert await old.finish_handover()
            assert not any(map(is_alive, workers))
            assert {(await ask(new))[1] for _ in range(10)} <= set(serving(new))
            async with supervised(again(new), take_over=True) as third:  # and again
                assert set(sockets) <= set(inodes(third))
                await new.finish_handover()
                await ask(third)

    run(work())


def test_without_one_that_runs_it_just_starts() -> None:
    async def work() -> None:
        async with supervised(take_over=True) as supervisor:
            await ask(supervisor)

    run(work())


def test_if_the_new_one_fails_the_old_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with supervised(config(workers=2)) as old:
            monkeypatch.setenv("FAKE_WORKER", "dies")
            with pytest.raises(StartError, match="I cannot start"):
                await Supervisor(again(old), command=FAKE, take_over=True).start()
            await until(lambda: "did not start; this one keeps serving" in lines(caplog))
            assert not old.superseded.is_set()
            await ask(old)
            monkeypatch.delenv("FAKE_WORKER")
            with pytest.raises(ListenError, match="--take-over"):
                await Supervisor(again(old), command=FAKE).start()
            async with supervised(again(old), take_over=True) as new:
                await ask(new)
                await old.finish_handover()

    run(work())


def test_a_model_that_is_served_there_must_be_ready_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steelyard.control.takeover.fleet_snapshot.READY_TIMEOUT_SECONDS", 0.3)

    async def work() -> None:
        async with supervised() as old:
            probed = again(old, models="", more="  m: {replicas: [{url: 'http://127.0.0.1:9'}]}\n")
            successor = Supervisor(probed, command=FAKE, take_over=True)
            with pytest.raises(TakeOverError, match="m has 1 replicas ready in the running gateway and none here"):
                await successor.start()
            await ask(old)

    run(work())


def test_what_operators_set_and_who_registered_is_handed_over() -> None:
    async def work() -> None:
        extra = ReplicaConfig(url="https://127.0.0.1:10", id="extra")
        leased = ReplicaConfig(url="https://127.0.0.1:11", id="leased")
        known = FleetState(
            ready={"m": ("127.0.0.1:9", "extra", "leased")},
            drained=(("m", "127.0.0.1:9"),),
            weights=(("m", "extra", 3.0),),
            models={"m": {"policy": "round_robin"}},
            added={"m": (extra,)},
            leases=(LeaseState("m", leased, "i", 60.0),),
        )
        async with supervised() as supervisor:
            old = supervisor.fleet
            restore_snapshot(old, known, old.now())
            old.members.refresh("m", at_once=True)
            old.transition(("m", "127.0.0.1:9"), Event.DRAIN, "by an operator")
            async with supervised(again(supervisor), take_over=True) as new:
                fleet = new.fleet
                assert take_snapshot(fleet).drained == known.drained
                assert {r.name: r.weight for r in fleet.config.models["m"].replicas} == {
                    "127.0.0.1:9": 1.0,
                    "extra": 3.0,
                    "leased": 1.0,
                }
                assert fleet.config.models["m"].policy == "round_robin"
                (lease,) = fleet.registrations.leases
                assert 0.0 < lease.until - fleet.now() <= 60.0
                await supervisor.finish_handover()

    run(work())


# ---------------------------------------------------------------------- who may


def test_the_control_socket_is_for_its_user_alone() -> None:
    async def work() -> None:
        async with supervised() as supervisor:
            path = control_socket_path(str(supervisor.addresses[0]))
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700
        assert not path.exists()

    run(work())


def test_an_open_folder_is_not_used_and_all_is_served(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with supervised() as supervisor:
            await ask(supervisor)

    with TemporaryDirectory(prefix="sy") as folder:  # tmp_path may be too long for a socket
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        open_to_all = Path(folder, "steelyard", "control")
        open_to_all.mkdir(parents=True)
        open_to_all.chmod(0o755)
        run(work())
    assert "cannot be taken over" in lines(caplog)
    assert "chmod 700" in lines(caplog)


def test_another_user_is_sent_away() -> None:
    class Link:
        def getsockopt(self, *what: int) -> bytes:
            return struct.pack("3i", 77, os.geteuid() + 1, 0)

    with pytest.raises(HandoverError, match="pid 77 belongs to another user"):
        check_peer(cast(socket.socket, Link()))


def test_only_one_successor_at_a_time_and_only_one_that_speaks_our_language() -> None:
    async def work() -> None:
        async with supervised() as supervisor:
            path = control_socket_path(str(supervisor.addresses[0]))

            def take(protocol: int) -> tuple[socket.socket, object]:
                link = connect(path)
                assert link is not None
                send(link, TakeOverRequest(1, "0", protocol))
                answer, sockets = receive(link)
                for one in sockets:
                    one.close()
                return link, answer

            def talk() -> list[object]:
                links, answers = zip(
                    *(take(protocol) for protocol in (PROTOCOL_VERSION, PROTOCOL_VERSION, 99)), strict=True
                )
                for link in links:
                    link.close()
                return list(answers)

            first, second, third = await asyncio.to_thread(talk)
            assert not isinstance(first, TakeOverRefused)
            assert second == TakeOverRefused("another one is taking over already")
            assert third == TakeOverRefused("the versions are too far apart")
            await ask(supervisor)

    run(work())


# ---------------------------------------------------------------------- systemd's sockets


def test_a_socket_that_systemd_opened_is_shared_by_all_workers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        port = given.getsockname()[1]
        inode = os.fstat(given.fileno()).st_ino
        listening = ListenerSockets([listen_address(f"127.0.0.1:{port}")], inherited=InheritedSockets([given.dup()]))
        for worker in range(3):
            (fd,) = listening.open(worker, 3)
            assert os.fstat(fd).st_ino == inode
        listening.close_all()
        with socket.create_connection(("127.0.0.1", port)):  # systemd holds it on: whoever comes waits
            pass


def test_what_the_configuration_does_not_name_is_closed() -> None:
    made = socket.create_server(("127.0.0.1", 0))
    name = str(made.getsockname())
    inherited = InheritedSockets([made, made.dup(), socket.socket()])  # the same twice, and one that does not listen
    listening = ListenerSockets([listen_address("127.0.0.1:0")], inherited=inherited)
    assert inherited.close_unclaimed() == [name]
    listening.close_all()
