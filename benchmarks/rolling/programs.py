"""Programs that the benchmark starts and restarts, each with its children, in a folder that is gone at the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from time import monotonic, sleep

STOP_TIMEOUT_SECONDS = 60.0
_INHERITED = ("HOME", "LANG", "PATH", "TMPDIR")


class Program:
    """Restartable with the same command."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.log = folder / f"{name}.log"
        self._command = list(command)
        inherited = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        self._environment = {**inherited, "XDG_STATE_HOME": str(folder), **environment}
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, ended as a whole
            )

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """SIGTERM, as process managers do; then whatever it left behind is killed."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


class ProgramManager(ExitStack):
    """Ends all programs that were made with it, whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(
            self.enter_context(tempfile.TemporaryDirectory(prefix="rolling-", ignore_cleanup_errors=True))
        )

    def program(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Program:
        program = Program(name, command, environment, self.folder)
        self.callback(program.stop)
        return program


def free_ports(count: int) -> int:
    """The first of `count` adjacent free ports, below the ephemeral range."""
    while True:
        first = Random().randrange(15_000, 30_000)
        if all(map(_is_free, range(first, first + count))):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def until(is_so: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    end = monotonic() + seconds
    while not is_so():
        if monotonic() > end:
            raise TimeoutError(otherwise())
        sleep(0.1)
