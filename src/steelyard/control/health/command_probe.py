"""A probe by the user's own program, run without a shell."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from contextlib import suppress
from time import monotonic

from ...addresses import replica_address
from ...config.rules.health import PLACEHOLDERS
from ...system import describe_exit
from ..workers.stderr_tail import StderrTail
from .http_client import printable_line
from .probe import ProbeResult, ProbeStatus, ProbeTarget

READY_EXIT_CODE, LOADING_EXIT_CODE = 0, 75  # the second is EX_TEMPFAIL of sysexits.h: try again later
KILL_WAIT_SECONDS = 1.0
POLL_INTERVAL_SECONDS = 0.02  # where the kernel has no pidfd
_PLACEHOLDER = re.compile(rf"(?<!\$)\{{({'|'.join(PLACEHOLDERS)})\}}")


class CommandProbe:
    """Exit code 0: ready; 75: loading; any other: broken, with the last line of standard error as the reason."""

    def __init__(self, target: ProbeTarget) -> None:
        names = _placeholder_values(target)
        self._command = [_PLACEHOLDER.sub(lambda found: names[found[1]], word) for word in target.health.command]
        self._environment = {f"STEELYARD_{name.upper()}": value for name, value in names.items()}
        self._timeout = target.health.timeout

    def reset(self) -> None:
        """Nothing to forget."""

    async def run(self) -> ProbeResult:
        began = monotonic()
        return (await self._run())._replace(seconds=monotonic() - began)

    async def _run(self) -> ProbeResult:
        name = self._command[0]
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=os.environ | self._environment,
                start_new_session=True,  # so that its children can be killed with it
            )
        except (OSError, ValueError) as error:  # a wrong command, or no resources for a process
            reason = getattr(error, "strerror", None) or error
            return ProbeResult(ProbeStatus.UNKNOWN, f"{name} cannot be run: {reason}")
        assert process.stderr is not None
        output = StderrTail(process.stderr, lambda line: None)
        try:
            async with asyncio.timeout(self._timeout):
                await _wait_for_exit(process)
        except TimeoutError:
            return ProbeResult(ProbeStatus.NO_RESPONSE, f"{name} has not ended in time ({self._timeout:g} s)")
        finally:
            await _kill_group(process)
            output.close()
        said = printable_line(output.lines[-1]) if output.lines else ""
        message = said or f"{name} ended with {describe_exit(process.returncode)}"
        return _result_of_exit_code(process.returncode, message)


async def _wait_for_exit(process: subprocess.Popen[bytes]) -> None:
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:  # a kernel without them, or no file descriptor left
        while process.poll() is None:
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        return
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    process.wait()


async def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with suppress(TimeoutError):  # the kernel may hold it, as with a disk that hangs
            await asyncio.wait_for(_wait_for_exit(process), KILL_WAIT_SECONDS)


def _result_of_exit_code(code: int, message: str) -> ProbeResult:
    if code == READY_EXIT_CODE:
        return ProbeResult(ProbeStatus.READY, message)
    if code == LOADING_EXIT_CODE:
        return ProbeResult(ProbeStatus.LOADING, message, definitive=True)
    return ProbeResult(ProbeStatus.BROKEN, message)


def _placeholder_values(target: ProbeTarget) -> dict[str, str]:
    address = replica_address(target.settings.url)
    port = target.health.port or address.port
    return {
        "url": target.settings.url,
        "host": address.host,
        "port": str(port) if port and not address.path else "",
        "id": target.settings.name,
        "model": target.model,
    }
