"""A batching engine such as vLLM: continuous batching, chunked prefill, paged KV memory, automatic prefix cache.

Each step gives every decoding sequence one token and computes up to `prefill_budget` prompt tokens, of those begun
first, then of the queue in order. It takes (llm/model.py)

    a + b · decoding sequences + k · tokens in their contexts + c · prompt tokens of the step

A request is admitted when its first chunk finds room; when a step does not, the sequence admitted last is preempted: it
gives up its memory and computes all of it again later. The first token follows the last chunk.

Steps without prompt tokens are not simulated one by one (step_run.py): the next event is the first finish, full memory,
or the end of the step in which a request arrives.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023; the
scheduler of vLLM 1. Limits: a prompt token costs c wherever it is in its prompt; a queue that waits for memory is
looked at again at these events only.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ...core.outcome import Outcome
from ..engine.job import EngineStep, Job, TokenJob
from ..engine.servers import Schedule, ServerBase
from .kv_cache import KvCache
from .model import KV_BLOCK_TOKENS, EngineModel
from .step_run import StepRun

SLACK_TOKENS = KV_BLOCK_TOKENS // 2  # of a sequence: the empty part of its last block, on average
REFUSAL_SECONDS = 0.001  # of a request that can never fit


class RunningRequest:
    """One attempt of a request in an engine, waiting or running."""

    __slots__ = ("computed", "decoding", "filled", "finish_step", "generated", "job", "joined_step", "to_prefill")

    def __init__(self, job: TokenJob) -> None:
        self.job = job
        self.to_prefill = job.prompt_tokens  # after a preemption, with what was generated
        self.computed = 0  # of these
        self.filled = 0  # leading blocks that it shares
        self.generated = 0
        self.decoding = False
        self.joined_step = 0  # when it began to decode
        self.finish_step = -1


class EngineServer(ServerBase):
    def __init__(self, id: str, model: EngineModel, block_tokens: int, speed: float = 1.0) -> None:
        super().__init__(id, speed, model.max_sequences, None, None)
        self.model = model
        self.kv = KvCache(model.kv_tokens, block_tokens)
        self.started: list[TokenJob] = []  # first tokens since they were last taken
        self.finished: list[TokenJob] = []
        self.preemptions = 0
        self.steps = 0
        self._requests: dict[Job, RunningRequest] = {}
        self._running: dict[RunningRequest, None] = {}  # in the order of admission
        self._prefilling: list[RunningRequest] = []
        self._completing: list[RunningRequest] = []  # their prompts end with this step
        self._finishes: list[tuple[int, int, RunningRequest]] = []
        self._count = 0
        self._decoding = 0
        self._context = 0  # tokens of those that decode
        self._abandoned: list[RunningRequest] = []
        self._alarm = EngineStep(self)
        self._blocked = False  # an arrival changes nothing before the next event
        self._run = StepRun()

    # ------------------------------------------------------------------ what a simulation tells it

    def accept(self, job: Job, now: float, schedule: Schedule) -> None:
        assert isinstance(job, TokenJob)
        if job.prompt_tokens + job.output_tokens + SLACK_TOKENS > self.kv.capacity:
            job.planned_outcome = Outcome.ERROR
            job.finish = now + REFUSAL_SECONDS
            schedule(job.finish, job)
            return
        job.first_token_at = 0.0
        self._requests[job] = RunningRequest(job)
        self.queue.append(job)
        if not self._run.steps:
            self._plan(now, schedule)
        elif not self._blocked:
            self._end_after_this_step(now, schedule)

    def ended(self, job: Job, now: float, schedule: Schedule) -> None:
        """The planned steps are over."""
        self._advance(now)
        self._plan(now, schedule)

    def abandon(self, job: Job, now: float, schedule: Schedule) -> None:
        request = self._requests.pop(job, None)
        if request is None:
            return  # it has just ended
        if job in self.queue:
            self.queue.remove(job)
            return
        self._abandoned.append(request)
        self._end_after_this_step(now, schedule)

    def clear(self) -> list[Job]:
        lost = self._lose(request.job for request in self._running if request.job in self._requests)
        self.kv.clear()
        self._requests.clear()
        self._running.clear()
        self._prefilling.clear()
        self._completing.clear()
        self._finishes.clear()
        self._abandoned.clear()
        self._decoding = self._context = self._run.steps = 0
        self._alarm.finish = -1.0
        return lost

    def set_speed(self, speed: float, now: float, schedule: Schedule) -> None:
        """From the next step on."""
        self.speed = speed
        self._end_after_this_step(now, schedule)

    @property
    def busy(self) -> int:
        return len(self._running)

    def tokens_by(self, now: float) -> Iterator[tuple[TokenJob, int]]:
        """The output tokens so far of the requests that decode, between its events too: for servers that stream."""
        steps = self.steps + self._run.done_by(now)
        for request in self._running:
            if request.decoding:
                yield request.job, request.generated + steps - request.joined_step

    def take_started(self) -> list[TokenJob]:
        taken, self.started = self.started, []
        return taken

    def take_finished(self) -> list[TokenJob]:
        taken, self.finished = self.finished, []
        return taken

    # ------------------------------------------------------------------ steps

    def _end_after_this_step(self, now: float, schedule: Schedule) -> None:
        if self._run.end_after_step_at(now):
            self._set_alarm(schedule)

    def _set_alarm(self, schedule: Schedule) -> None:
        self._alarm.finish = self._run.end
        schedule(self._alarm.finish, self._alarm)

    def _advance(self, now: float) -> None:
        """What the planned steps did."""
        steps, self._run.steps = self._run.steps, 0
        self.steps += steps
        grown = self._decoding * steps
        self.kv.held += grown
        self._context += grown
        while self._finishes and self._finishes[0][0] <= self.steps:
            finish, _, request = heappop(self._finishes)
            if request.finish_step == finish:
                self._finish(request)
        for request in self._completing:
            self._prefill_done(request)
        self._completing.clear()
        for request in self._abandoned:
            if request in self._running:
                self._leave(request)
        self._abandoned.clear()

    def _prefill_done(self, request: RunningRequest) -> None:
        job = request.job
        self._prefilling.remove(request)
        request.decoding = True
        request.joined_step = self.steps
        self._decoding += 1
        self._context += request.to_prefill
        if not request.generated and job in self._requests:
            self.started.append(job)
        request.generated += 1
        left = job.output_tokens - request.generated
        if left <= 0:
            self._finish(request)
            return
        request.finish_step = self.steps + left
        self._count += 1
        heappush(self._finishes, (request.finish_step, self._count, request))

    def _finish(self, request: RunningRequest) -> None:
        self._leave(request)
        if self._requests.pop(request.job, None) is not None:
            self.finished.append(request.job)
            self.served += 1

    def _leave(self, request: RunningRequest) -> None:
        """It gives its memory back; full blocks stay cached."""
        tokens = request.computed
        if request.decoding:
            tokens += self.steps - request.joined_step
            self._decoding -= 1
            self._context -= tokens
            request.decoding = False
        else:
            self._prefilling.remove(request)
        del self._running[request]
        size, blocks = self.kv.block_tokens, request.job.blocks if self.model.prefix_cache else ()
        private = tokens - request.filled * size + SLACK_TOKENS
        self.kv.release(blocks, request.filled, tokens // size, private)
        request.finish_step = -1
        request.computed = request.filled = 0

    def _preempt(self, request: RunningRequest) -> None:
        if request.decoding:
            request.generated += self.steps - request.joined_step
            request.to_prefill = request.job.prompt_tokens + request.generated
        self._leave(request)
        self.preemptions += 1
        self.queue.appendleft(request.job)

    # ------------------------------------------------------------------ the plan

    def _plan(self, now: float, schedule: Schedule) -> None:
        kv, before = self.kv, self.preemptions
        while self._decoding and not kv.has_room(self._decoding):
            self._preempt(next(reversed(self._running)))
        left = self._continue_prefills(self.model.prefill_budget)
        crowded = self.preemptions > before
        admitted = 0
        if self.queue and not crowded:
            kv.trim()
            left, admitted = self._admit(left)
        kv.trim()
        if len(self._finishes) > 4 * len(self._running) + 64:  # after many preemptions
            self._finishes = [entry for entry in self._finishes if entry[2].finish_step == entry[0]]
            heapify(self._finishes)
        self._blocked = bool(self.queue) or len(self._running) >= self.slots
        if not self._running:
            return
        self._time_steps(self.model.prefill_budget - left, admitted, crowded)
        self._run.begun = now
        self._set_alarm(schedule)

    def _time_steps(self, prefill_tokens: int, admitted: int, crowded: bool) -> None:
        model, count = self.model, self._decoding
        seconds = model.step_base + count * model.per_sequence + self._context * model.per_context_token
        seconds += prefill_tokens * model.per_prefill_token + admitted * model.request_overhead
        self._run.first = seconds / self.speed
        self._run.growth = count * model.per_context_token / self.speed
        self._run.steps = 1
        if not prefill_tokens and not (crowded and self.queue):
            until_full = (self.kv.capacity - self.kv.held) // count
            while self._finishes[0][2].finish_step != self._finishes[0][0]:
                heappop(self._finishes)
            self._run.steps = max(1, min(self._finishes[0][0] - self.steps, until_full))

    def _continue_prefills(self, budget: int) -> int:
        """Of prompts begun before. Returns what is left of the budget."""
        for request in list(self._prefilling):
            if not budget:
                break
            if request not in self._running:
                continue  # preempted for one before it
            chunk = min(budget, request.to_prefill - request.computed)
            while not self.kv.has_room(self._decoding + chunk):
                last = next(reversed(self._running))
                self._preempt(last)
                if last is request:
                    return budget
            self._compute(request, chunk)
            budget -= chunk
        return budget

    def _admit(self, budget: int) -> tuple[int, int]:
        """From the queue, in order, while there is room. Returns what is left of the budget, and how many."""
        kv, admitted = self.kv, 0
        size = kv.block_tokens
        while self.queue and budget and len(self._running) < self.slots:
            request = self._requests[self.queue[0]]
            blocks = request.job.blocks if self.model.prefix_cache else ()
            matched = kv.match(blocks, (request.to_prefill - 1) // size)  # the last token is always computed
            given = request.job.given_hits if not matched else 0
            cached = matched * size + given
            chunk = min(budget, request.to_prefill - cached)
            if not kv.has_room(self._decoding + kv.idle_tokens(blocks, matched) + given + chunk + SLACK_TOKENS):
                break
            self.queue.popleft()
            kv.hold(blocks, matched)
            kv.held += SLACK_TOKENS + given
            self._running[request] = None
            self._prefilling.append(request)
            request.computed, request.filled = cached, matched
            if not request.generated:
                request.job.cached_tokens = cached
            self._compute(request, chunk)
            budget -= chunk
            admitted += 1
        return budget, admitted

    def _compute(self, request: RunningRequest, chunk: int) -> None:
        kv = self.kv
        kv.held += chunk
        request.computed += chunk
        if self.model.prefix_cache:
            full = min(request.computed // kv.block_tokens, len(request.job.blocks))
            kv.fill(request.job.blocks, request.filled, full)
            request.filled = max(request.filled, full)
        if request.computed >= request.to_prefill:
            self._completing.append(request)
