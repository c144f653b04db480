"""`kind: process` in a configuration: keys, rules, advice and fingerprint. Does not import the runtime: configurations
are also read on machines where it cannot run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import msgspec

from ...addresses import replica_address
from ...config import ANY_MODEL, ModelConfig
from ...config.commands import (
    fill_in,
    missing_program_error,
    placeholder_error,
    redacted_command,
    split_command,
    uses_placeholder,
)
from ...config.files import folder_problems
from ...config.rules.runtime import max_started
from ...config.sections.base import Count, described
from ...config.sections.kinds import Findings
from ...config.sections.runtime import RuntimeSection
from ...documents import Key, Problem, Size

if TYPE_CHECKING:
    from .runtime import ProcessRuntime

RESERVED_VARIABLE_PREFIX = "STEELYARD_"
_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_MIN_PORT, _MAX_PORT = 1024, 65535  # ports that need no rights of their own
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class ProcessRuntimeConfig(RuntimeSection, frozen=True):
    """Replicas as processes of this machine."""

    __renamed__: ClassVar[dict[str, str]] = {
        "folder": "working_directory",
        "ports": "port_range",
        "log": "log_directory",
        "log_size": "max_log_size",
    }

    command: Annotated[
        str | tuple[str, ...],
        described(
            "command of a replica: words, or a text to split (no shell); "
            "fills in `{port} {model} {device} {gpu} {id} {url}`",
            examples=["steelyard demo-replica --port {port}"],
        ),
    ]
    environment: Annotated[dict[str, str], described("further variables, with the same placeholders")] = msgspec.field(
        default_factory=dict
    )
    working_directory: Annotated[str, described("of the command; empty: the folder of the configuration")] = ""
    url: Annotated[str, described("where a replica listens: with `{port}`, or `unix:/path` with `{id}`")] = (
        "http://127.0.0.1:{port}"
    )
    port_range: Annotated[str, described("ports for `{port}`, first and last")] = "20000-29999"
    cpus: Annotated[Count | None, described("cores reserved for each replica, while there are enough")] = None
    log_directory: Annotated[str, described("for output of replicas; empty: `steelyard` in the state folder")] = ""
    max_log_size: Annotated[Size, described("most output kept per replica")] = Size(10 << 20)

    @property
    def may_use_tls(self) -> bool:
        return self.url.lower().startswith("https:")

    def describe(self) -> str:
        return redacted_command(self.command)

    def problems(self, key: Key, model: ModelConfig) -> Iterator[Problem]:
        yield from _shared_ports(key, model)
        wrong_words = [*_command(key, self), *_environment(key, self)]
        yield from wrong_words
        yield from _url(key, model, self)
        if not wrong_words:
            yield from _placeholder_use(key, self)
        if not self.max_log_size:
            yield Problem((*key, "max_log_size"), "must be more than 0")

    def file_problems(self, key: Key) -> Iterator[Problem]:
        yield from folder_problems((*key, "working_directory"), self.working_directory)

    def with_absolute_paths(self, folder: Path) -> Self:
        logs = str(folder / self.log_directory) if self.log_directory else ""
        return msgspec.structs.replace(self, log_directory=logs, working_directory=str(folder / self.working_directory))

    def fingerprint(self) -> str:
        """Without what does not affect running replicas: logs and ports."""
        try:
            command: object = split_command(self.command)  # the same words may be written as a text or as a list
        except ValueError:
            command = self.command
        made = (self.kind, command, sorted(self.environment.items()), self.working_directory, self.url, self.cpus)
        return sha256(json.dumps(made).encode()).hexdigest()[:16]

    def templates(self) -> list[str]:
        """Texts that may hold placeholders, besides the URL."""
        return [*([self.command] if isinstance(self.command, str) else self.command), *self.environment.values()]

    @classmethod
    def has_replicas(cls, gateway_name: str, predecessor_pid: int = 0) -> bool:
        from .ownership import find_owned

        return any(find_owned(gateway_name, predecessor_pid))

    @classmethod
    def open(cls, gateway_name: str) -> ProcessRuntime:
        from .runtime import ProcessRuntime

        return ProcessRuntime(gateway_name)

    def missing_command(self, key: Key) -> Findings:
        """a `runtime` whose program is missing"""
        if what := missing_program_error(self.command, self.working_directory, self.environment):
            do = "Write its whole path, or a path from runtime.working_directory that begins with a dot, or install it."
            yield (*key, "command"), f"Nothing can be started: {what}.", do

    advice: ClassVar = {"missing-command": missing_command}


def _shared_ports(key: Key, model: ModelConfig) -> Iterator[Problem]:
    """A port for probes or metrics would be the same for all: they run on one machine."""
    for part, port in (("health", model.health.port), ("load_metrics", model.load_metrics.port)):
        if port and max_started(model) > 1:
            what = "all replicas that are started on this machine would be asked at this one port: leave it out"
            yield Problem((*key[:-1], part, "port"), what)


def parse_port_range(text: str) -> tuple[int, int]:
    found = _PORT_RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a range of ports: write for example 20000-29999")
    first, last = int(found[1]), int(found[2])
    if not (_MIN_PORT <= first <= _MAX_PORT and _MIN_PORT <= last <= _MAX_PORT):
        raise ValueError(f"{text!r}: a port for a replica is from {_MIN_PORT} to {_MAX_PORT}")
    if last < first:
        raise ValueError(f"{text!r}: the range ends before it begins")
    return first, last


def _command(key: Key, runtime: ProcessRuntimeConfig) -> Iterator[Problem]:
    here: Key = (*key, "command")
    try:
        split_command(runtime.command)
    except ValueError as problem:
        yield Problem(here, str(problem))
        return
    command = runtime.command
    for place, text in enumerate([command] if isinstance(command, str) else command):
        where: Key = here if text is command else (*here, place)
        if "\0" in text:
            yield Problem(where, "a word of a command has no NUL in it")
        if what := placeholder_error(text):
            yield Problem(where, what)


def _environment(key: Key, runtime: ProcessRuntimeConfig) -> Iterator[Problem]:
    for name, value in runtime.environment.items():
        where: Key = (*key, "environment", name)
        if not _VARIABLE.fullmatch(name):
            yield Problem(where, f"{name!r} is not the name of a variable: write for example MODEL_PATH")
        elif name.startswith(RESERVED_VARIABLE_PREFIX):
            yield Problem(where, f"{RESERVED_VARIABLE_PREFIX}… is for Steelyard to set: take another name")
        elif "\0" in value:
            yield Problem(where, "a variable has no NUL in it")
        elif what := placeholder_error(value):
            yield Problem(where, what)


def _url(key: Key, model: ModelConfig, runtime: ProcessRuntimeConfig) -> Iterator[Problem]:
    try:
        first, last = parse_port_range(runtime.port_range)
    except ValueError as problem:
        yield Problem((*key, "port_range"), str(problem))
        return
    if what := _url_error(runtime.url, first):
        yield Problem((*key, "url"), what)
        return
    most = max_started(model)
    if not _address_placeholders(runtime) and most > 1:
        same = "socket: use {id}" if runtime.url.startswith("unix:") else "port: use {port}"
        yield Problem((*key, "url"), f"two replicas cannot listen on the same {same}")
    if uses_placeholder(runtime.url, "port") and last - first + 1 < most < float("inf"):
        there = f"{last - first + 1} port{'s' * (last > first)}"
        yield Problem((*key, "port_range"), f"{there} for up to {most:.0f} replicas: each needs one of its own")


def _url_error(url: str, port: int) -> str:
    """Empty: filled in, it is the address of a replica."""
    if what := placeholder_error(url):
        return what
    for word in ("model", "device", "gpu", "url"):
        if uses_placeholder(url, word):
            return f"`{{{word}}}` is not filled in here: only `{{port}}` and `{{id}}` are"
    try:
        replica_address(fill_in(url, {"port": port, "id": "r1"}))
    except ValueError as problem:
        return str(problem)
    return ""


def _placeholder_use(key: Key, runtime: ProcessRuntimeConfig) -> Iterator[Problem]:
    """A replica must learn where to listen."""
    texts = runtime.templates()
    placeholders = _address_placeholders(runtime)
    if placeholders and not any(uses_placeholder(text, word) for text in texts for word in (*placeholders, "url")):
        what, name = ("port", "{port}") if "port" in placeholders else ("address", "{url}")
        what = f"`command` does not pass the {what}: put {name} into command or environment"
        yield Problem((*key, "command"), what)
    if key[-2:-1] == (ANY_MODEL,) and any(uses_placeholder(text, "model") for text in texts):
        what = f"{ANY_MODEL} stands for every name, so there is none to put in for {{model}}: give the model its name"
        yield Problem((*key, "command"), what)


def _address_placeholders(runtime: ProcessRuntimeConfig) -> list[str]:
    return [word for word in ("port", "id") if uses_placeholder(runtime.url, word)]
