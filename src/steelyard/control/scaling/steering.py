"""One model's number of replicas: decided again and again, told to the keeper or only said, and remembered."""

from __future__ import annotations

from collections.abc import Sequence

from ...config import Autoscale, ModelConfig
from ...core.request import INFINITY
from ...core.scalers.base import Seen
from ...core.scaling import Scaling, Verdict
from ...link.messages import ModelReport, Wanted
from ..starting.keeper import Count
from .hands import ScalingHands
from .history import History, Step
from .lowest import Lowest
from .options import ACT, FIXED, mode, options
from .plans import Plan
from .signals import Signals, terms
from .troubles import Troubles
from .verdicts import change

SETTLE = 60.0  # seconds for which what was found running stays, at the least: nothing is known of the time before
FIRST_LOOK = 5.0  # seconds until probes have seen who serves
LASTING = 30.0  # seconds for which a replica that is not ours must serve before one of ours goes for it
AS_CONFIGURED = "as configured"


class Steering:
    def __init__(self, name: str, model: ModelConfig, hands: ScalingHands) -> None:
        self.name = name
        self.mode = ""  # fixed, act, recommend
        self.number = 0  # how many there should be, others' included
        self.why = ""
        self.verdict: Verdict | None = None  # the last one
        self.history = History()
        self.troubles = Troubles(name, hands)
        self.decided = -INFINITY  # when
        self._hands = hands
        self._signals = Signals(terms(model))
        self._scaling: Scaling | None = None  # none to be had: the number stays as it is
        self._plan = Plan(Autoscale())
        self._others = Lowest(LASTING)
        self._kept = 0  # so many of ours stay at first
        self._began = hands.clock()  # in this mode

    # ------------------------------------------------------------------ the configuration

    def follow(self, model: ModelConfig) -> None:
        self.model = model
        self._signals.terms = terms(model)
        before, self.mode = self.mode, mode(model)
        self.decided = -INFINITY  # by other rules: decide soon
        if self.mode != before:
            self.verdict, self.why, self.number = None, "", self._hands.ready().get(self.name, 0)
            self._began = self._hands.clock()
            self.troubles.over()
        self._use()
        if self.mode == ACT != before:
            self._begin()
        elif self.mode != ACT:
            self._stay()

    def _use(self) -> None:
        """Whatever is wrong with a scaler of somebody's own: the number stays, and the one that was in force."""
        scale = self.model.autoscale
        if scale is None:
            self._scaling = None
            return
        with self.troubles.spared():
            self._plan = Plan(scale)
            if self._scaling is None:
                self._scaling = Scaling(options(scale))
            else:
                self._scaling.use(options(scale))

    def _begin(self) -> None:
        """What runs goes on: of the time before nothing is known, so nobody can say yet that it is too much."""
        assert self.model.autoscale is not None
        scale, count = options(self.model.autoscale), self.count()
        others = self._not_ours(self._hands.ready().get(self.name, 0), count, self._began)
        self._kept = int(min(count.ready + count.starting, scale.most))
        self.number = int(min(max(scale.least, self._floor(others)), scale.most))
        self.why = "as many as ran already, or the least"
        self._hands.keeper.want(self.name, max(0, self.number - others), self.why)

    def _not_ours(self, ready: int, count: Count, now: float) -> int:
        """Replicas that serve and were not started here. At first those that are configured are expected to."""
        expected = len(self.model.replicas) - sum(count) if now < self._began + FIRST_LOOK else 0
        return max(0, ready - count.ready, expected)

    def _floor(self, others: int) -> int:
        """How many must be wanted, if of ours those that ran already stay."""
        return self._kept + others if self._kept else 0

    def _stay(self) -> None:
        """As many as the configuration says, where it is not decided here."""
        if self.model.runtime is not None:
            self._hands.keeper.want(self.name, self.model.runtime.replicas, AS_CONFIGURED)
            if self.mode == FIXED:
                self.number, self.why = self.model.runtime.replicas, AS_CONFIGURED

    def count(self) -> Count:
        return self._hands.keeper.count(self.name) if self.model.runtime is not None else Count()

    def cold_start(self) -> tuple[float, bool]:
        """Seconds, and whether they were measured."""
        if self.model.runtime is not None:
            return self._hands.keeper.cold_start(self.name)
        return (float(self.model.autoscale.cold_start) if self.model.autoscale is not None else 0.0), False

    # ------------------------------------------------------------------ decisions

    def wanted(self, message: Wanted, now: float) -> bool:
        """Requests wait. Is it to be decided at once? One that is wanted already is being started, or is backed off."""
        self._signals.wanted(message.waiting, message.work, now)
        return self.mode == ACT and not self._hands.keeper.wanted(self.name)

    def decide(self, reports: Sequence[ModelReport], ready: int, now: float) -> None:
        """`ready`: replicas that serve, whoever started them."""
        self.decided = now
        if self.mode != ACT:
            self._stay()
        if self.mode == FIXED:
            self.troubles.over()
            return
        self._signals.take_in(reports, now, ready=ready)
        count = self.count()
        others = self._others.see(self._not_ours(ready, count, now), now)
        cold_start = self.cold_start()[0]
        seen = self._signals.seen(now, ready=ready, coming=count.starting, cold_start=cold_start)
        self._kept = min(self._kept, count.ready + count.starting)
        verdict = self._verdict(seen, others)
        if self.mode == ACT:
            self._act(seen, verdict, others)
        elif verdict is not None:
            self._recommend(seen, verdict)
        if verdict is not None:
            self.troubles.decided(seen, verdict)

    def _verdict(self, seen: Seen, others: int) -> Verdict | None:
        """None: there is none, because deciding fails."""
        if self._scaling is None:
            return None
        with self.troubles.spared():
            planned = self._plan.least(self._hands.wall(), seen.cold_start)
            kept = self._floor(others) if self.mode == ACT and seen.now < self._began + SETTLE else 0
            self.verdict = self._scaling.decide(seen, planned=planned, kept=kept)
            return self.verdict
        return None

    def _act(self, seen: Seen, verdict: Verdict | None, others: int) -> None:
        number, why = (verdict.replicas, verdict.why) if verdict is not None else (self.number, self.why)
        if not number and seen.waiting:  # whatever a scaler says, or if it cannot: who waits is not left waiting
            number, why = 1, "1: requests wait"
        if number != self.number:
            what = change(self.number, number, why)
            self._remember(self.number, number, what, seen, carried_out=True)
            self._hands.note(what, self.name)
        self.number, self.why = number, why
        self._hands.keeper.want(self.name, max(0, number - others), why)

    def _recommend(self, seen: Seen, verdict: Verdict) -> None:
        there, number = seen.ready + seen.coming, verdict.replicas
        if not there and seen.now < self._began + FIRST_LOOK:
            return  # nobody has looked yet at who serves
        before = self.number if self.why else there
        if number != before:
            what = f"would go {change(there, number, verdict.why)}" if number != there else f"would stay at {there}"
            self._remember(before, number, what, seen, carried_out=False)
            self._hands.note(what, self.name)
        self.number, self.why = number, verdict.why

    def _remember(self, before: int, number: int, why: str, seen: Seen, *, carried_out: bool) -> None:
        want = self.verdict.want if self.verdict is not None else None
        numbers = (want.offered, want.lately, want.forecast) if want is not None else (0.0, 0.0, 0.0)
        self.history.add(Step(seen.now, before, number, why, *numbers, seen.p99, carried_out))
