"""What a server noted of each request, one line of JSON each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from .models import Shape
from .plan import features_of

OUT_OF_MEMORY_MESSAGES = ("out of memory", "ALLOC_FAILED", "OutOfMemory")  # how torch, cuBLAS and cuDNN say it


class RequestRecord(NamedTuple):
    model: str
    shape: Shape
    began: float
    ended: float
    bytes: int | None  # what it needed at most; None: it failed, or was not alone in its process
    problem: str = ""

    @property
    def ran_out(self) -> bool:
        return any(words in self.problem for words in OUT_OF_MEMORY_MESSAGES)

    @property
    def features(self) -> tuple[float, float, float]:
        return features_of(self.shape)

    def line(self) -> str:
        return json.dumps(self._asdict())


def read_records(folder: Path) -> list[RequestRecord]:
    """Of all servers, in the order in which they ended."""
    lines = [line for path in folder.glob("*.notes") for line in path.read_text(encoding="utf-8").splitlines()]
    notes = [RequestRecord(**json.loads(line)) for line in lines]
    return sorted((note._replace(shape=tuple(note.shape)) for note in notes), key=lambda note: note.ended)
