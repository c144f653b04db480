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
from ...config.probe_rules import PLACEHOLDERS
from ...runtimes.endings import how_it_ended
from ..last_words import LastWords
from .round import shown
from .seen import Kind, Seen
from .target import Target

READY, LOADING = 0, 75  # exit codes; the second is EX_TEMPFAIL of sysexits.h: try again later
FAREWELL = 1.0  # seconds in which what was killed should be gone
EVERY = 0.02  # seconds between looks, where the kernel does not tell
_PLACE = re.compile(rf"(?<!\$)\{{({'|'.join(PLACEHOLDERS)})\}}")


class CommandProbe:
    """Exit code 0: ready; 75: loading; any other: it does not live. The last line of standard error says why."""

    def __init__(self, target: Target) -> None:
        names = _names(target)
        self._command = [_PLACE.sub(lambda found: names[found[1]], word) for word in target.health.command]
        self._environment = {f"STEELYARD_{name.upper()}": value for name, value in names.items()}
        self._timeout = target.health.timeout

    def forget(self) -> None:
        """It remembers nothing."""

    async def look(self) -> Seen:
        began = monotonic()
        seen = await self._run()
        return seen._replace(seconds=monotonic() - began)

    async def _run(self) -> Seen:
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
            return Seen(Kind.UNKNOWN, f"{name} cannot be run: {getattr(problem, 'strerror', None) or problem}")
        assert process.stderr is not None
        words = LastWords(process.stderr, lambda line: None)
        try:
            async with asyncio.timeout(self._timeout):
                await _exit(process)
        except TimeoutError:
            return Seen(Kind.SILENT, f"{name} has not ended in time ({self._timeout:g} s)")
        finally:
            await _end(process)
            words.close()
        said = shown(words.lines[-1]) if words.lines else ""
        return _judged(process.returncode, said or f"{name} ended with {how_it_ended(process.returncode)}")


async def _exit(process: subprocess.Popen[bytes]) -> None:
    """Returns when it has ended; its exit code is known then."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:  # a kernel without them, or no file descriptor left: ask now and then
        while process.poll() is None:
            await asyncio.sleep(EVERY)
        return
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
    process.wait()


async def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with suppress(TimeoutError):  # the kernel may hold it, as with a disk that does not answer
            await asyncio.wait_for(_exit(process), FAREWELL)


def _judged(code: int, detail: str) -> Seen:
    if code == READY:
        return Seen(Kind.READY, detail)
    if code == LOADING:
        return Seen(Kind.LOADING, detail, sure=True)
    return Seen(Kind.BROKEN, detail)


def _names(target: Target) -> dict[str, str]:
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
