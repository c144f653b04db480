"""What a proxy is to the benchmarks: a program to find, a command to start it, and an honest word on what it does."""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PEERS_VARIABLE = "STEELYARD_PEERS"  # folders to look for programs in before PATH, separated as in PATH


@dataclass(frozen=True)
class Setting:
    """What every proxy is given alike."""

    listen: int  # port on 127.0.0.1
    replicas: tuple[int, ...]  # ports on 127.0.0.1
    folder: Path  # for files of its own
    streaming: bool = False  # pass bodies on as they come, where that is not the default
    extra: tuple[int, ...] = ()  # more free ports, for those that insist on an admin or metrics port
    workers: int = 1  # processes or threads of the proxy


@dataclass(frozen=True)
class Start:
    command: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


class Peer(ABC):
    """One way to run one proxy. `name` is unique; `rewrites` says what it does to headers; `rule` how it chooses."""

    name: str
    program: str  # as in a shell
    rule: str
    rewrites: str = ""
    ours = False  # Steelyard: judged against the others

    def find(self) -> str | None:
        """Where the program is, or None."""
        beside = str(Path(sys.executable).parent)
        places = [os.environ.get(PEERS_VARIABLE, ""), beside, os.environ.get("PATH", ""), "/usr/sbin"]
        return shutil.which(self.program, path=os.pathsep.join(places))

    @abstractmethod
    def start(self, program: str, setting: Setting) -> Start: ...


def write(setting: Setting, name: str, text: str) -> str:
    path = setting.folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)
