"""A program of the user's own that knows whether a replica is ready. No shell reads it."""

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
from .probe import ProbeResult, ProbeStatus, ProbeTarget
from .probe_sequence import printable_line

READY_EXIT_CODE, LOADING_EXIT_CODE = 0, 75  # exit codes; the second is EX_TEMPFAIL of sysexits.h: try again later
KILL_WAIT_SECONDS = 1.0  # seconds in which what was killed should be gone
POLL_INTERVAL_SECONDS = 0.02  # seconds between looks, where the kernel does not tell
_PLACEHOLDER = re.compile(rf"(?<!\$)\{{({'|'.join(PLACEHOLDERS)})\}}")


class CommandProbe:
    """Exit code 0: ready; 75: loading; any other: it does not live. The last line of standard error says why."""

    def __init__(self, target: ProbeTarget) -> None:
        names = _placeholder_values(target)
        self._command = [_PLACEHOLDER.sub(lambda found: names[found[1]], word) for word in target.health.command]
        self._environment = {f"STEELYARD_{name.upper()}": value for name, value in names.items()}
        self._timeout = target.health.timeout

    def reset(self) -> None:
        """It remembers nothing."""

    async def run(self) -> ProbeResult:
        began = monotonic()
        seen = await self._run()
        return seen._replace(seconds=monotonic() - began)

    async def _run(self) -> ProbeResult:
        name = self._command[0]
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=os.environ | self._environment,
                start_new_session=True,  # so that it can be ended with all that it started
            )
        except (OSError, ValueError) as problem:  # our mistake, or no room for another process
            return ProbeResult(
                ProbeStatus.UNKNOWN, f"{name} cannot be run: {getattr(problem, 'strerror', None) or problem}"
            )
        assert process.stderr is not None
        words = StderrTail(process.stderr, lambda line: None)
        try:
            async with asyncio.timeout(self._timeout):
                await _wait_for_exit(process)
        except TimeoutError:
            return ProbeResult(ProbeStatus.NO_RESPONSE, f"{name} has not ended in time ({self._timeout:g} s)")
        finally:
            await _kill_group(process)
            words.close()
        said = printable_line(words.lines[-1]) if words.lines else ""
        return _result_of_exit_code(
            process.returncode, said or f"{name} ended with {describe_exit(process.returncode)}"
        )


async def _wait_for_exit(process: subprocess.Popen[bytes]) -> None:
    """Returns when it has ended; its exit code is known then."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:  # a kernel without them, or no file descriptor left: ask now and then
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
    """With all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with suppress(TimeoutError):  # the kernel may hold it, as with a disk that does not answer
            await asyncio.wait_for(_wait_for_exit(process), KILL_WAIT_SECONDS)


def _result_of_exit_code(code: int, detail: str) -> ProbeResult:
    if code == READY_EXIT_CODE:
        return ProbeResult(ProbeStatus.READY, detail)
    if code == LOADING_EXIT_CODE:
        return ProbeResult(ProbeStatus.LOADING, detail, definitive=True)
    return ProbeResult(ProbeStatus.BROKEN, detail)


def _placeholder_values(target: ProbeTarget) -> dict[str, str]:
    """What stands for `{url}` and the others."""
    address = replica_address(target.settings.url)
    port = target.health.port or address.port
    return {
        "url": target.settings.url,
        "host": address.host,
        "port": str(port) if port and not address.path else "",
        "id": target.settings.name,
        "model": target.model,
    }
