"""Processes of a benchmark: found as a tree, counted, and ended with all their children."""

from __future__ import annotations

import sys

import pytest
from benchmarks.testbed.processes import ProcessManager, StartError, cores, free_ports
from benchmarks.testbed.procfs import alive

from tests.harness.processes import free_port
from tests.harness.waiting import wait_until

PARENT = """
import subprocess, sys, time
child = [sys.executable, "-c", "import socket, time; s = socket.create_server(('127.0.0.1', PORT)); time.sleep(600)"]
subprocess.Popen([part.replace("PORT", sys.argv[1]) for part in child], start_new_session=True)
sum(range(3_000_000))
time.sleep(600)
"""


def test_a_tree_is_counted_and_ended_as_a_whole() -> None:
    port = free_port()
    with ProcessManager() as processes:
        running = processes.start("parent", [sys.executable, "-c", PARENT, str(port)], cores()[0], [port])
        pids = running.pids()
        assert len(pids) == 2
        wait_until(lambda: running.cpu_seconds() > 0, "the kernel counts a hundredth of a second of it")
        assert running.peak_memory() > 1 << 20
        folder = processes.folder
    assert not any(alive(pid) for pid in pids)
    assert not folder.exists()


def test_a_program_that_does_not_come_up_is_told_with_its_last_words() -> None:
    port = free_port()
    with ProcessManager() as processes, pytest.raises(StartError, match="no such luck"):
        processes.start("luckless", [sys.executable, "-c", "raise SystemExit('no such luck')"], cores()[0], [port])


def test_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
