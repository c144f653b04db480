"""What is run for a replica (its words, environment and folder), and its start as an independent process."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ...config.commands import fill_in, split_command
from ..base import ReplicaSpec, ReplicaStartError
from . import log_files, procfs
from .allocation import THREAD_COUNT_VARIABLES, pinned_to

# A replica must neither speak to systemd in the supervisor's place, nor register itself a second time.
_SUPERVISOR_VARIABLES = {
    *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"),
    "STEELYARD_GATEWAY",
}
# Programs that set a title in `ps` overwrite their environment, and with it our marks. The Python package setproctitle
# (vLLM, Ray, gunicorn) can be asked to leave it alone.
_KEEP_ENVIRONMENT = {"SPT_NOENV": "1"}


def placeholder_values(spec: ReplicaSpec, port: int, url: str) -> dict[str, object]:
    named = {"model": spec.model, "device": spec.device, "gpu": spec.gpu, "id": spec.id, "url": url}
    return named | ({"port": port} if port else {})


def environment(
    spec: ReplicaSpec, values: Mapping[str, object], cores: int, marks: Mapping[str, str]
) -> dict[str, str]:
    """The gateway's own, with the configuration's, which wins over our choices."""
    found = _KEEP_ENVIRONMENT | {name: value for name, value in os.environ.items() if name not in _SUPERVISOR_VARIABLES}
    if cores:
        found = dict.fromkeys(THREAD_COUNT_VARIABLES, str(cores)) | found
    if spec.gpu:
        found["CUDA_VISIBLE_DEVICES"] = spec.gpu
        if spec.gpu.isdecimal():  # otherwise CUDA counts the fastest first, unlike nvidia-smi
            found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    found |= {name: fill_in(value, values) for name, value in spec.settings.environment.items()}
    return {**found, **marks}


def command(spec: ReplicaSpec, values: Mapping[str, object], environment: Mapping[str, str], folder: Path) -> list[str]:
    """Its words. ReplicaStartError: the first is no program."""
    try:
        found = [fill_in(word, values) for word in split_command(spec.settings.command)]
    except ValueError as problem:
        raise ReplicaStartError("failed", f"the command cannot be read: {problem}") from None
    _check_program(found[0], environment.get("PATH", os.defpath), folder)
    return found


def working_directory(spec: ReplicaSpec) -> Path:
    folder = Path(spec.settings.working_directory).absolute()
    if not os.path.isdir(folder):  # pathlib's raises where we may not look
        what = "is not a folder" if os.path.exists(folder) else "does not exist"
        raise ReplicaStartError("working_directory_missing", f"the working folder {folder} {what}")
    if not os.access(folder, os.X_OK):
        raise ReplicaStartError("permission_denied", f"we may not enter the working folder {folder}")
    return folder


def _check_program(word: str, path: str, folder: Path) -> None:
    if "/" not in word:
        if shutil.which(word, path=path) is None:
            raise ReplicaStartError("command_not_found", f"there is no command {word!r} in PATH ({path})")
        return
    program = folder / word
    if os.path.isdir(program):
        raise ReplicaStartError("permission_denied", f"{program} is a folder, not a command")
    if not os.path.exists(program):
        raise ReplicaStartError("command_not_found", f"there is no file {program}")
    if not os.access(program, os.X_OK):
        raise ReplicaStartError("permission_denied", f"{program} may not be executed: see its permissions (chmod +x)")


def spawn_error(problem: OSError | ValueError, word: str) -> ReplicaStartError:
    number = problem.errno if isinstance(problem, OSError) else None
    if number == errno.ENOEXEC:
        what = "is neither a program for this machine nor a script whose first line names its interpreter (#!)"
        return ReplicaStartError("permission_denied", f"{word} {what}")
    if number == errno.ENOENT:
        what = "the interpreter that its first line names does not exist"
        return ReplicaStartError("command_not_found", f"{word}: {what}")
    if number in (errno.EACCES, errno.EPERM):
        return ReplicaStartError("permission_denied", f"{word} may not be executed: {os.strerror(number)}")
    return ReplicaStartError("failed", f"{word} was not started: {getattr(problem, 'strerror', None) or problem}")


def spawn(
    words: Sequence[str], environment: Mapping[str, str], folder: Path, path: Path, cpus: Collection[int]
) -> tuple[int, int]:
    """Its pid and start ticks. The caller must reap it."""
    new = not os.path.exists(path)
    try:
        output = log_files.open_log(path)
    except OSError as problem:
        raise ReplicaStartError("failed", log_files.log_error(path, problem)) from None
    try:
        with pinned_to(cpus):
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,  # no pipe: that would end with us
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,  # Ctrl-C in the terminal is for us alone
            )
    except (OSError, ValueError) as problem:
        if new:
            path.unlink(missing_ok=True)
        raise spawn_error(problem, words[0]) from None
    finally:
        os.close(output)
    process.returncode = 0  # otherwise Popen warns that its process still runs
    seen = procfs.stat(process.pid)
    return process.pid, seen.start_ticks if seen is not None else 0
