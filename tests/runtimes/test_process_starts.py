"""What a process is started with, and every way in which it is not."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steelyard.runtimes import Instance, ReplicaSpec, ReplicaStartError
from steelyard.runtimes.process import procfs
from steelyard.runtimes.process.config import ProcessRuntimeConfig as Settings

from .commands import shell
from .driving import ends, gateway, opened, pid_of, run, spare_ports, started_under, until, until_said

TELLS = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"


@pytest.fixture
def name() -> Iterator[str]:
    with gateway() as name:
        yield name


def seen_by_process(name: str, tmp_path: Path, order: ReplicaSpec) -> tuple[Instance, list[str], dict[str, str], str]:
    """What a process sees of how it was started."""
    found: list[Any] = []

    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            command = (sys.executable, "-S", "-c", TELLS, *order.settings.command)
            known = Settings(
                command=command,
                environment=order.settings.environment,
                working_directory=order.settings.working_directory,
                url=order.settings.url,
                cpus=order.settings.cpus,
                log_directory=str(tmp_path),
            )
            found.append(await runtime.start(order._replace(settings=known)))
            await until(lambda: heard)
            found.extend(json.loads(Path(found[0].log_path).read_text()))

    run(story())
    return tuple(found)


def refused(name: str, tmp_path: Path, **settings: Any) -> ReplicaStartError:
    """The one clear sentence of a start that did not happen, and nothing is left of it."""
    problems: list[ReplicaStartError] = []

    async def story() -> None:
        async with opened(name) as runtime:
            with pytest.raises(ReplicaStartError) as caught:
                await runtime.start(
                    ReplicaSpec("m", "one", Settings(**{"log_directory": str(tmp_path / "logs")} | settings))
                )
            assert await runtime.list() == ()
            problems.append(caught.value)

    run(story())
    assert started_under(name) == []
    assert list((tmp_path / "logs").rglob("*.log")) == []
    return problems[0]


# ---------------------------------------------------------------------- what it sees


def test_braces_are_filled_in_words_and_environment(name: str, tmp_path: Path) -> None:
    settings = Settings(
        command=("--port={port}", "{model}", "{device}/{gpu}", "{id}", "{url}", '{"a": {}}', "${HOME} $(x) ; *"),
        environment={"WHERE": "{url}", "PLAIN": "so"},
    )
    order = ReplicaSpec("a model/b", "one", settings, device="gpu0", gpu="GPU-8a5")
    instance, words, environment, _ = seen_by_process(name, tmp_path, order)
    port = instance.url.rpartition(":")[2]
    assert 20000 <= int(port) <= 29999
    assert words == [
        f"--port={port}",
        "a model/b",
        "gpu0/GPU-8a5",
        "one",
        instance.url,
        '{"a": {}}',
        "${HOME} $(x) ; *",
    ]
    assert environment["WHERE"] == instance.url == f"http://127.0.0.1:{port}"
    assert environment["PLAIN"] == "so"
    assert environment["STEELYARD_MODEL"] == "a model/b"
    assert environment["STEELYARD_ID"] == "one"


def test_environment_is_ours_without_what_is_for_us_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("STEELYARD_GATEWAY", "http://127.0.0.1:9080")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _, _, environment, folder = seen_by_process(name, tmp_path, ReplicaSpec("m", "one", Settings(command=("x",))))
    assert environment["MINE"] == "yes"
    assert environment["SPT_NOENV"] == "1"
    assert not {"NOTIFY_SOCKET", "STEELYARD_GATEWAY", "CUDA_VISIBLE_DEVICES"} & set(environment)
    assert folder == os.getcwd()


@pytest.mark.parametrize(("gpu", "order"), [("1", "PCI_BUS_ID"), ("GPU-8a5", None)])
def test_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: str, order: str | None) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    _, _, environment, _ = seen_by_process(name, tmp_path, ReplicaSpec("m", "one", Settings(command=("x",)), gpu=gpu))
    assert environment["CUDA_VISIBLE_DEVICES"] == gpu
    assert environment.get("CUDA_DEVICE_ORDER") == order


def test_what_is_configured_wins(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "no")
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    wanted = {"CUDA_VISIBLE_DEVICES": "{gpu},1", "OMP_NUM_THREADS": "3", "MINE": "yes"}
    order = ReplicaSpec("m", "one", Settings(command=("x",), environment=wanted, cpus=1), gpu="0")
    _, _, environment, _ = seen_by_process(name, tmp_path, order)
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["MKL_NUM_THREADS"] == "7"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["MINE"] == "yes"


def test_folder_and_a_program_in_it(name: str, tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o700)

    async def story() -> None:
        async with opened(name) as runtime:
            heard = ends(runtime)
            await runtime.start(
                ReplicaSpec(
                    "m",
                    "one",
                    Settings(command="./server", working_directory=str(tmp_path), log_directory=str(tmp_path)),
                )
            )
            await until(lambda: heard)
            assert runtime.log_tail("m", "one") == (str(tmp_path.resolve()),)

    run(story())


def test_it_is_cut_off_from_the_supervisor(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            settings = Settings(command=shell("echo up; sleep 1000; :"), log_directory=str(tmp_path))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            await until_said(runtime, started, "up")
            pid = pid_of(started)
            seen = procfs.stat(pid)
            assert seen is not None
            assert seen.session == seen.group == pid
            files = Path(f"/proc/{pid}/fd")
            assert {name: os.readlink(files / name) for name in os.listdir(files)} == {
                "0": "/dev/null",
                "1": started.log_path,
                "2": started.log_path,
            }

    run(story())


# ---------------------------------------------------------------------- what does not start


def test_a_command_that_is_not_there(name: str, tmp_path: Path) -> None:
    problem = refused(name, tmp_path, command="no-such-server --port {port}")
    assert problem.reason == "command_not_found"
    assert "there is no command 'no-such-server' in PATH (" in str(problem)


def test_a_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    problem = refused(name, tmp_path, command="./server --port {port}", working_directory=str(tmp_path))
    assert (problem.reason, str(problem)) == ("command_not_found", f"there is no file {tmp_path}/server")


def test_a_file_that_may_not_be_executed(name: str, tmp_path: Path) -> None:
    (tmp_path / "server").write_text("#!/bin/sh\n")
    problem = refused(name, tmp_path, command=f"{tmp_path}/server")
    assert problem.reason == "permission_denied"
    assert "may not be executed" in str(problem)


def test_a_folder_for_a_command(name: str, tmp_path: Path) -> None:
    problem = refused(name, tmp_path, command=str(tmp_path))
    assert (problem.reason, str(problem)) == ("permission_denied", f"{tmp_path} is a folder, not a command")


def test_a_script_without_an_interpreter(name: str, tmp_path: Path) -> None:
    script = tmp_path / "server"
    script.write_text("echo hello\n")
    script.chmod(0o700)
    assert "first line names its interpreter" in str(refused(name, tmp_path, command=str(script)))
    script.write_text("#!/no/such/python\n")
    problem = refused(name, tmp_path, command=str(script))
    assert (problem.reason, str(problem)) == (
        "command_not_found",
        f"{script}: the interpreter that its first line names does not exist",
    )


def test_a_working_folder_that_is_not_there(name: str, tmp_path: Path) -> None:
    problem = refused(name, tmp_path, command="true", working_directory=f"{tmp_path}/away")
    assert (problem.reason, str(problem)) == (
        "working_directory_missing",
        f"the working folder {tmp_path}/away does not exist",
    )
    (tmp_path / "file").touch()
    assert "is not a folder" in str(refused(name, tmp_path, command="true", working_directory=f"{tmp_path}/file"))


def test_a_log_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    problem = refused(name, tmp_path, command="true", log_directory=f"{tmp_path}/file")
    assert problem.reason == "failed"
    assert f"cannot be written: {tmp_path}/file" in str(problem)
    assert "is no folder" in str(problem)


def test_no_home_to_keep_logs_in(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for variable in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert "no home folder" in str(refused(name, tmp_path, command="true", log_directory=""))


def test_words_that_no_kernel_takes(name: str, tmp_path: Path) -> None:
    assert refused(name, tmp_path, command=("echo", "a\0b")).reason == "failed"
    problem = refused(name, tmp_path, command=("echo", "x" * (1 << 20)))
    assert (problem.reason, str(problem)) == ("failed", "echo was not started: Argument list too long")
    assert refused(name, tmp_path, command="echo 'open").reason == "failed"


def test_a_host_that_nobody_knows(name: str, tmp_path: Path) -> None:
    problem = refused(name, tmp_path, command="true", url="http://no-such-host.invalid:{port}")
    assert problem.reason == "failed"
    assert "the host no-such-host.invalid" in str(problem)


# ---------------------------------------------------------------------- addresses


def test_a_port_that_a_stranger_has(name: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        problem = refused(name, tmp_path, command="true", url=f"http://127.0.0.1:{port}")
        assert problem.reason == "port_in_use"
        assert str(problem) == f"127.0.0.1:{port} is in use by pid {os.getpid()} ({procfs.process_name(os.getpid())})"
        assert refused(name, tmp_path, command="true {port}", port_range=f"{port}-{port}").reason == "no_free_port"
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        port = stranger.getsockname()[1]
        assert refused(name, tmp_path, command="true", url=f"http://127.0.0.1:{port}").reason == "port_in_use"
        assert refused(name, tmp_path, command="true {port}", port_range=f"{port}-{port}").reason == "no_free_port"


def test_a_socket_that_a_stranger_has(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.sock"
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        stranger.listen()
        problem = refused(name, tmp_path, command="true", url=f"unix:{path}")
        assert problem.reason == "port_in_use"
        assert f"unix:{path} is in use by pid {os.getpid()}" in str(problem)
    path.unlink()
    path.write_text("precious")
    assert "is no socket" in str(refused(name, tmp_path, command="true", url=f"unix:{path}"))


def test_a_socket_that_an_ended_server_left_is_no_hindrance(name: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as earlier:
        earlier.bind(f"{tmp_path}/one.sock")

    async def story() -> None:
        async with opened(name) as runtime:
            settings = Settings(command="sleep 1000", url=f"unix:{tmp_path}/{{id}}.sock", log_directory=str(tmp_path))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            assert started.url == f"unix:{tmp_path}/one.sock"

    run(story())


def test_a_fixed_address_is_given_once(name: str, tmp_path: Path) -> None:
    """Though the first does not listen there yet."""
    port = spare_ports()

    async def story() -> None:
        async with opened(name) as runtime:
            settings = Settings(command="sleep 1000", url=f"http://127.0.0.1:{port}", log_directory=str(tmp_path))
            started = await runtime.start(ReplicaSpec("m", "one", settings))
            with pytest.raises(ReplicaStartError, match=f"belongs to one of model m, {started.location}") as caught:
                await runtime.start(ReplicaSpec("m", "two", settings))
            assert caught.value.reason == "port_in_use"
            await runtime.stop("m", "one", timeout=20)
            await runtime.start(ReplicaSpec("m", "two", settings))

    run(story())


def test_each_has_a_port_of_its_own_until_there_are_none(name: str, tmp_path: Path) -> None:
    first = spare_ports()

    async def story() -> None:
        async with opened(name) as runtime:
            settings = Settings(command="sleep 1000", port_range=f"{first}-{first + 2}", log_directory=str(tmp_path))
            urls = {(await runtime.start(ReplicaSpec("m", str(n), settings))).url for n in range(3)}
            assert urls == {f"http://127.0.0.1:{port}" for port in range(first, first + 3)}
            with pytest.raises(ReplicaStartError, match=f"every port from {first} to {first + 2} is in use") as caught:
                await runtime.start(ReplicaSpec("m", "3", settings))
            assert caught.value.reason == "no_free_port"

    run(story())


# ---------------------------------------------------------------------- cores, fingerprint


def test_cores_are_shared_out_and_ours_stay_ours(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        before = os.sched_getaffinity(0)
        async with opened(name) as runtime:
            settings = Settings(
                command=shell("echo $OMP_NUM_THREADS; exec sleep 1000"), cpus=1, log_directory=str(tmp_path)
            )
            started = [await runtime.start(ReplicaSpec("m", str(n), settings)) for n in range(len(before))]
            given = [os.sched_getaffinity(pid_of(instance)) for instance in started]
            assert sorted(core for cores in given for core in cores) == sorted(before)
            assert os.sched_getaffinity(0) == before
            await until_said(runtime, started[0], "1")

    run(story())


def test_more_cores_than_there_are(name: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(name) as runtime:
            started = await runtime.start(
                ReplicaSpec("m", "1", Settings(command="sleep 1000", cpus=4096, log_directory=str(tmp_path)))
            )
            assert os.sched_getaffinity(pid_of(started)) == os.sched_getaffinity(0)

    run(story())


def test_a_fingerprint_changes_with_what_only_a_new_process_follows() -> None:
    base = Settings(command="server --port {port}", environment={"A": "1", "B": "2"})
    same = [
        Settings(command=("server", "--port", "{port}"), environment={"B": "2", "A": "1"}),
        Settings(
            command=base.command, environment=base.environment, replicas=7, port_range="30000-30001", devices=("x",)
        ),
        Settings(command=base.command, environment=base.environment, log_directory="/logs"),
    ]
    others = [
        Settings(command="server --port  {port} -v", environment=base.environment),
        Settings(command=base.command),
        Settings(command=base.command, environment=base.environment, working_directory="/"),
        Settings(command=base.command, environment=base.environment, url="http://localhost:{port}"),
        Settings(command=base.command, environment=base.environment, cpus=1),
    ]
    assert {settings.fingerprint() for settings in same} == {base.fingerprint()}
    assert len({settings.fingerprint() for settings in [base, *others]}) == 6
