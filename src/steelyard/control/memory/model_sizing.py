"""What a model and its requests need of a device, and what workers were sent."""

from __future__ import annotations

from collections import deque
from math import inf

from ...config.sections.memory import MemoryConfig
from ...core.memory.request_size import RequestSizeModel
from ...link.messages import MemorySample, MemorySizes, OutOfMemory
from .footprint import FootprintEstimate

MAX_PENDING_SAMPLES = 1024  # of more, the latest
MAX_RECENT_REQUESTS = 64  # whose sizes are shown
OUT_OF_MEMORY_CAUTION_SECONDS = 10.0  # after a request ran out of memory, in which none counts as nothing
FORGET_AFTER_SECONDS = 900.0  # after the last that ran out, until such requests are trusted again
MIN_MESSAGE_SPACING_SECONDS = 0.2


class ModelSizing:
    def __init__(self, model: str, memory: MemoryConfig) -> None:
        self.model = model
        self.footprint = FootprintEstimate(memory.footprint)
        self.requests = RequestSizeModel(memory.per_request, memory.per_unit)
        self._declared = memory
        self._silent = False  # its answers do not say what a request needed
        self._late: deque[tuple[tuple[float, ...], str]] = deque(maxlen=MAX_RECENT_REQUESTS)
        self._waiting: deque[MemorySample] = deque(maxlen=MAX_PENDING_SAMPLES)
        self._ran_out = -inf  # when
        self._sent: tuple[int, int, bool] | None = None
        self._sent_at = -inf

    def declare(self, memory: MemoryConfig) -> None:
        """If the configuration says something else of requests, learning begins again there."""
        self.footprint.declared = memory.footprint
        before = self._declared
        if memory != before:
            self._sent = None  # workers begin with what is declared
        if (memory.per_request, memory.per_unit) != (before.per_request, before.per_unit):
            self.requests = RequestSizeModel(memory.per_request, memory.per_unit)
            self._sent = None
        self._declared = memory

    @property
    def unmeasured(self) -> bool:
        """Nothing says what requests need: they count as nothing."""
        return self._silent and not self.requests.known

    def is_silent(self, now: float) -> None:
        self._silent = now - self._ran_out > OUT_OF_MEMORY_CAUTION_SECONDS

    def add_sample(self, sample: MemorySample) -> None:
        self._waiting.append(sample)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def learn(self, most: int) -> None:
        for _ in range(min(most, len(self._waiting))):
            sample = self._waiting.popleft()
            self._late.append((sample.features, sample.kind))
            self.requests.observe(sample.features, sample.kind, sample.bytes)

    def out_of_memory(self, message: OutOfMemory, now: float) -> int:
        """What such a request is estimated to need from now on; 0: unknown."""
        at_least = max(message.available, message.bytes + 1 if message.bytes > 0 else 0)
        self.requests.record_out_of_memory(message.features, message.kind, at_least)
        self._silent, self._ran_out = False, now  # rather one at a time than as many as come
        return max(0, at_least)

    def tick(self, now: float) -> None:
        """Measurements lower raised estimates; without any, only time does."""
        if now - self._ran_out > FORGET_AFTER_SECONDS and self._ran_out > -inf:
            self._ran_out = -inf
            self.requests.clear_floors()

    def due(self, now: float) -> bool:
        return self._sent != self._now() and now - self._sent_at >= MIN_MESSAGE_SPACING_SECONDS

    def tell(self, now: float) -> MemorySizes:
        self._sent, self._sent_at = self._now(), now
        return self.message()

    def message(self) -> MemorySizes:
        return MemorySizes(self.model, self.footprint.value, self.requests.state(), self.unmeasured)

    def _now(self) -> tuple[int, int, bool]:
        return self.requests.version, self.footprint.value, self.unmeasured

    @property
    def source(self) -> str:
        if self.requests.samples:
            return "learned"
        if self._declared.tells_requests:
            return "declared"
        return "unmeasured" if self.unmeasured else "learned" if self.requests.known else "unknown"

    def range(self) -> tuple[int, int]:
        """What recent requests need, the smallest and the largest, by the current estimate."""
        late = self._late or [((), "")]
        needs = [self.requests.upper_bound(features, kind) for features, kind in late]
        return min(needs), max(needs)
