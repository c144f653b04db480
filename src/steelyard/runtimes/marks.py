"""What tells a later supervisor which processes are replicas, and of what: marks in their environment.

Nothing on disk can be lost or be out of date, and another process that has got the same pid has no such marks.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from . import proc

GATEWAY = "STEELYARD_STARTED_BY"  # not STEELYARD_GATEWAY: that is where the replica kit would register
MODEL = "STEELYARD_MODEL"
ID = "STEELYARD_ID"
URL = "STEELYARD_URL"
FACTS = "STEELYARD_STARTED"
_MOMENT = 0.02  # seconds


class Facts(msgspec.Struct, frozen=True):
    """What is known of a replica from its start on. Other versions may know less, or more, and take it over too."""

    token: str  # of this start alone; its children inherit it
    url: str
    supervisor: tuple[int, int] = (0, 0)  # who started it: pid and when that was born
    device: str = ""
    made_of: str = ""
    log: str = ""
    log_size: int = 10 << 20
    log_from: int = 0  # where in the log it begins
    cpus: tuple[int, ...] = ()
    number: int = 0


class Found(NamedTuple):
    """A process with marks."""

    pid: int
    born: int
    model: str
    id: str
    facts: Facts


def marks(gateway: str, model: str, id: str, facts: Facts) -> dict[str, str]:
    return {GATEWAY: gateway, MODEL: model, ID: id, URL: facts.url, FACTS: msgspec.json.encode(facts).decode()}


def find(gateway: str, heir_of: int = 0) -> tuple[list[Found], list[Found]]:
    """The replicas that run under this gateway's name, each once; and what is left of such that ended. Those of a
    supervisor that lives are its own, unless it is the one whose heir we are.

    Their children have the same marks, and may even lead a session of their own: the replica was born first.
    """
    replicas: dict[str, Found] = {}
    others = []
    for found, session in sorted(_marked(gateway, heir_of), key=lambda pair: (pair[0].born, pair[0].pid)):
        if session == found.pid:
            replicas.setdefault(found.facts.token, found)
        elif not proc.lives(session):
            others.append(found)
    return list(replicas.values()), [found for found in others if found.facts.token not in replicas]


def _marked(gateway: str, heir_of: int) -> Iterator[tuple[Found, int]]:
    """With the sessions that they are in."""
    unclear = []
    for pid in proc.pids():
        if proc.is_ours(pid) and not proc.is_kernel(pid):
            if marked := proc.environment(pid):
                yield from _read(pid, marked, gateway, heir_of)
            else:
                unclear.append(pid)
    if unclear:  # in the moment in which a process begins another program it seems to have none
        select.select((), (), (), _MOMENT)  # a wait that no clock is asked for
    for pid in unclear:
        yield from _read(pid, proc.environment(pid), gateway, heir_of)


def _read(pid: int, marked: Mapping[str, str], gateway: str, heir_of: int) -> Iterator[tuple[Found, int]]:
    facts, seen = _facts(marked), proc.stat(pid)
    if seen is None or not seen.lives or facts is None or _is_supervised(facts.supervisor, heir_of):
        return
    if marked.get(GATEWAY) == gateway and marked.get(MODEL) and marked.get(ID):
        yield Found(pid, seen.born, marked[MODEL], marked[ID], facts), seen.session


def _facts(marked: Mapping[str, str]) -> Facts | None:
    try:
        facts = msgspec.json.decode(marked.get(FACTS, ""), type=Facts)
    except msgspec.MsgspecError:  # none, or somebody's own
        return None
    return facts if facts.token else None


def _is_supervised(supervisor: tuple[int, int], heir_of: int) -> bool:
    """By another one that lives: two gateways of the same name leave each other's replicas alone."""
    pid, born = supervisor
    seen = proc.stat(pid)
    return pid not in (os.getpid(), heir_of) and seen is not None and seen.born == born and seen.lives


def is_relative(pid: int, leader: int, born: int, token: str) -> bool:
    """Is it left of a replica that ended: in its group, or with its marks?"""
    seen = proc.stat(pid)
    if pid in (leader, os.getpid()) or seen is None or not seen.lives:
        return False
    # As long as anybody is in a group, the kernel gives its number to no new process.
    if leader and seen.group == leader and ((first := proc.stat(leader)) is None or first.born == born):
        return True
    facts = _facts(proc.environment(pid)) if proc.is_ours(pid) else None
    return facts is not None and facts.token == token
