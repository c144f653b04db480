"""What stays of a request that is over: counts, its SLO verdict, and lines of the logs.

The access log hears of every request; its trace and its decision record are the request's `observers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...config import Config, TracingConfig
from ...core.slo.verdicts import NO_SLO
from ..exchange import Exchange
from ..telemetry import model_stats
from ..telemetry.model_stats import ModelStats
from ..telemetry.observers import NO_OBSERVER, DecisionObserver, Tracer

if TYPE_CHECKING:
    from ..telemetry.access_log import AccessLog
    from ..telemetry.decision_log import DecisionLog
    from ..telemetry.log_file import LogFile

SAMPLE_ALL: Final = b"g"  # above all numbers in hexadecimal digits


class RequestRecorder:
    def __init__(self) -> None:
        self.stats: dict[str, ModelStats] = {}
        self.unrouted = ModelStats()  # requests that could not be read, or named no model of this gateway
        self.tracer = Tracer()
        self.tracing_settings: TracingConfig | None = None
        self.traces = False
        self.trace_threshold = b""  # requests whose random span id is below it are traced
        self.samples_decisions = False
        self.log: AccessLog | None = None
        self._decisions: DecisionLog | None = None
        self._decision_observer = DecisionObserver()

    def configure(self, config: Config) -> None:
        self.stats = {name: self.stats.get(name) or ModelStats() for name in config.models}
        for name, model in config.models.items():
            if model.slo is not None:
                self.stats[name].set_targets(model.slo.objective(), model.slo.tenant_objectives())
            else:
                self.stats[name].set_targets(NO_SLO, {})

    @property
    def decisions(self) -> DecisionLog | None:
        return self._decisions

    @decisions.setter
    def decisions(self, decisions: DecisionLog | None) -> None:
        self._decisions = decisions
        self._decision_observer.log = decisions if decisions is not None else NO_OBSERVER
        self.samples_decisions = decisions is not None

    def _logs(self) -> dict[str, LogFile]:
        logs: dict[str, LogFile | None] = {"access_log": self.log, "decision_log": self._decisions}
        return {name: log for name, log in logs.items() if log is not None}

    def replace_logs(self, log: AccessLog | None, decisions: DecisionLog | None) -> None:
        """The old ones write what they have and end by themselves."""
        before = self._logs()
        self.log, self.decisions = log, decisions
        for name, old in before.items():
            old.close(0.0)
            if name in self._logs():
                self._logs()[name].dropped += old.dropped
        if decisions is not None:
            decisions.attach()

    def set_tracer(self, tracer: Tracer | None, settings: TracingConfig | None = None) -> None:
        old, self.tracer = self.tracer, tracer if tracer is not None else Tracer()
        self.tracing_settings = settings
        self.traces = tracer is not None
        share = self.tracer.sample
        self.trace_threshold = b"%016x" % int(share * 2.0**64) if share < 1.0 else SAMPLE_ALL
        old.close(0.0)  # its thread ends by itself

    def dropped(self) -> dict[str, int]:
        lost = {name: log.dropped for name, log in self._logs().items()}
        return {**lost, "spans": self.tracer.dropped} if self.traces else lost

    def flush(self) -> None:
        for log in self._logs().values():
            log.flush()

    def close(self) -> None:
        for log in self._logs().values():
            log.close()
        self.tracer.close()

    def sample_decision(self, exchange: Exchange, now: float) -> None:
        if self._decisions is None:
            return
        self._decisions.arrived(exchange, now)
        if exchange.choice_trace is not None:
            exchange.observers = (*exchange.observers, self._decision_observer)

    def finished(self, exchange: Exchange, reason: str, now: float) -> None:
        stats = exchange.stats
        if stats is None:
            stats = self.unrouted
        outcome = exchange.outcome
        status = exchange.status
        if not outcome:
            if status < 400:
                stats.count_ok(now - exchange.started_at)
                outcome = model_stats.OK
            else:
                outcome = model_stats.CLIENT_ERROR if status < 500 and status != 429 else model_stats.FAILED
                stats.count_outcome(outcome)
        else:
            stats.count_outcome(outcome)
        if status != 200:
            stats.count_status(status)
        if exchange.tokens is not None and exchange.usage is None:  # its client left before the end
            exchange.usage = exchange.tokens.usage()
        if exchange.usage is not None:
            stats.record_tokens(exchange, exchange.usage, outcome, now)
        if stats is not self.unrouted and not exchange.route.health_request:
            exchange.slo_verdict = stats.record_slo(exchange, outcome, now, reason)
        if self.log is not None:
            self.log.sink(exchange, outcome, reason, now)
        for observer in exchange.observers:
            observer.finished(exchange, outcome, reason, now)
        exchange.observers = ()
