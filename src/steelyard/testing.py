"""The conformance suite for policies: those of Steelyard pass it, and yours should too.

With pytest, in a test file of your own:

    class TestMine(PolicyConformance):
        policy = "my_package.my_module:Mine"
        options = {"patience": 3}

Without it: `check_policy("my_package.my_module:Mine", patience=3)`. Every check drives a real `Balancer` in virtual
time with seeded randomness, so a failure repeats; nothing sleeps or reads a clock.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from heapq import heappop, heappush
from random import Random
from types import GetSetDescriptorType
from typing import Any, ClassVar
from unittest import SkipTest

from .core.balancer import Balancer
from .core.decision import Decision, Reject, Send
from .core.options import OutlierDetectionOptions, PoolOptions, RetryOptions
from .core.outcome import Outcome
from .core.policies import find_policy, make_policy
from .core.policies.base import Policy
from .core.pool import Pool
from .core.prompt import Prompt
from .core.replica import TRANSITIONS, Event, Replica
from .core.request import INFINITY, Attempt, Request, RequestPhase

SERVICE_SECONDS = 0.05  # of every request on every replica
FIRST_BYTE_SECONDS = 0.02  # of it, until the answer begins
PROMPT_BYTES = 6000
ERROR_SECONDS = 0.001  # until a failing replica answers
IDLE_LOAD = 0.05  # requests per replica, on average
MAX_UNEVENNESS = 0.15  # of the fair share
MAX_WEIGHT_DEVIATION = 0.10
MAX_FAILING_SHARE = 1.2  # times the fair share
NO_RETRIES = RetryOptions(max_attempts=1)  # so that shares are the policy's own choices
NO_EJECTION = OutlierDetectionOptions(enabled=False)

ODD_FEATURES: tuple[tuple[float, ...], ...] = (
    (),
    (0.0, 0.0, 0.0),
    (1e308, 1e308, 1e308),
    (-1.0, -1e308, 5e-324),
    (float("nan"), INFINITY, -INFINITY),
    (1.0,) * 50,
)
ODD_KEYS = (None, "", "\0", "k" * 100_000, "ключ 鍵 🔑", "\udcff")
ODD_PROMPTS = (
    None,
    Prompt(0),
    Prompt(10**9, tuple(range(256))),
    Prompt(10**7, (7,) * 256),
    Prompt(3_000, (2**64 - 1,), 1e12),
)


class PolicyConformance:
    """Subclass it with a name that pytest collects, and set `policy`."""

    policy: ClassVar[str] = ""  # a name of the table, or package.module:Class
    options: ClassVar[Mapping[str, Any]] = {}
    respects_weights: ClassVar[bool] = True  # shares are in proportion to weights
    evens_out: ClassVar[bool] = True  # equal replicas get equal shares

    # ------------------------------------------------------------------ what it returns and leaves alone

    def test_it_chooses_one_of_the_candidates_whatever_their_number(self) -> None:
        for count in (1, 2, 3, 64, 500):
            fleet = self._fleet(count)
            fleet.traffic(300, load=min(2.0, 100 / count))
            fleet.wind_down()

    def test_it_takes_the_only_candidate_however_busy_that_is(self) -> None:
        fleet = self._fleet(1)
        for _ in range(50):
            decision = fleet.submit()
            assert isinstance(decision, Send), f"{self.policy}: the only replica was open, yet it answered {decision}"
        fleet.wind_down()

    def test_it_changes_nothing_of_a_replica_but_its_notes(self) -> None:
        fleet = self._fleet(5, watch=_CheckedPolicy, warm_keys=4)
        fleet.failing.add("r1")
        fleet.traffic(200, load=2.0)
        fleet.balancer.report("r2", Event.DRAIN, now=fleet.now)
        fleet.traffic(200, load=0.5)
        fleet.wind_down()

    def test_equal_seeds_and_times_give_equal_choices(self) -> None:
        global_state = random.getstate()
        runs = []
        for _ in range(2):
            fleet = self._fleet(7, seed=5)
            fleet.traffic(1000, load=2.0)
            runs.append(fleet.order)
        at = next((i for i, (one, other) in enumerate(zip(*runs, strict=True)) if one != other), None)
        assert at is None, f"{self.policy}: two runs with equal seeds and times differ from choice {at} on"
        assert random.getstate() == global_state, f"{self.policy}: drew from the global random, not from the rng given"

    # ------------------------------------------------------------------ shares

    def test_equal_replicas_get_equal_shares_when_idle(self) -> None:
        self._needs("evens_out")
        fleet = self._fleet(5)
        fleet.traffic(20_000, load=IDLE_LOAD)
        self._check_even(fleet, "equal idle replicas", [r.id for r in fleet.replicas])

    def test_equal_replicas_get_equal_shares_when_busy(self) -> None:
        self._needs("evens_out")
        fleet = self._fleet(5)
        fleet.traffic(20_000, load=4.0)
        self._check_even(fleet, "equal replicas, each with some four requests", [r.id for r in fleet.replicas])

    def test_ties_are_fair_wherever_the_busier_replicas_stand(self) -> None:
        """Finds a scan that keeps an earlier, busier candidate, which idle replicas hide."""
        self._needs("evens_out")
        for busier in (("r0", "r3"), ("r2", "r5")):
            fleet = self._fleet(6)
            for _ in range(300):
                # A peer's load is forgotten after a few seconds.
                for id in busier:
                    fleet.balancer.report_peer_load(id, 5, now=fleet.now)
                fleet.traffic(20, load=IDLE_LOAD)
            others = [r.id for r in fleet.replicas if r.id not in busier]
            self._check_even(fleet, f"idle replicas beside busier {' and '.join(busier)}", others)
            self._check_even(fleet, "busier replicas beside idle ones", busier)
            most = max(fleet.picked[id] for id in busier)
            least = min(fleet.picked[id] for id in others)
            assert most <= (1 + MAX_UNEVENNESS) * least, (
                f"{self.policy}: a replica with five requests more than another got more new ones ({most} to {least})"
            )

    def test_shares_follow_weights(self) -> None:
        self._needs("respects_weights")
        # Many at once, or one request more or less would be a coarse step for the lightest.
        fleet = self._fleet(3, weights=(1.0, 2.0, 3.0))
        fleet.traffic(10_000, load=60.0)
        total = sum(r.weight for r in fleet.replicas)
        for replica in fleet.replicas:
            wanted = replica.weight / total
            found = fleet.picked[replica.id] / len(fleet.order)
            assert abs(found - wanted) <= MAX_WEIGHT_DEVIATION * wanted, (
                f"{self.policy}: weight {replica.weight:g} of {total:g} should get {wanted:.3f} of the requests, "
                f"not {found:.3f}"
            )

    def test_errors_do_not_make_a_replica_attractive(self) -> None:
        """A replica that fails at once is always idle and fast; neither may attract requests."""
        for load in (0.5, 4.0):
            fleet = self._fleet(5)
            fleet.failing.add("r1")
            fleet.traffic(6_000, load=load)
            times = fleet.picked["r1"] * len(fleet.replicas) / len(fleet.order)
            assert times <= MAX_FAILING_SHARE, (
                f"{self.policy}: a replica that fails each request at once got {times:.2f} × its fair share with "
                f"{load:g} requests per replica; at most {MAX_FAILING_SHARE} is allowed"
            )

    # ------------------------------------------------------------------ the world around it

    def test_no_replica_gets_more_than_its_concurrency(self) -> None:
        fleet = self._fleet(4, concurrency=2)
        for _ in range(100):
            for _ in range(12):
                fleet.submit()
                over = [r for r in fleet.replicas if r.load > 2]
                assert not over, f"{self.policy}: {over[0]} has more than the 2 requests it takes at once"
            fleet.wind_down()
        assert not fleet.refused, f"{self.policy}: {fleet.refused[0]} though all could be served in time"

    def test_it_survives_replicas_that_come_and_go_with_requests_in_flight(self) -> None:
        for concurrency in (2, "unlimited"):
            ejection = OutlierDetectionOptions(base_ejection_time=0.5)
            fleet = self._fleet(6, concurrency=concurrency, outlier_detection=ejection, slow_start=1.0)
            fleet.failing.add("r2")
            rng = Random(7)
            for step in range(400):
                fleet.change(rng, step)
                fleet.traffic(4, load=2.0)
            fleet.wind_down()

    def test_odd_requests_do_not_crash_it(self) -> None:
        fleet = self._fleet(5, warm_keys=3)
        rng = Random(11)
        for _ in range(600):
            fleet.submit(
                features=rng.choice(ODD_FEATURES),
                key=rng.choice(ODD_KEYS),
                prompt=rng.choice(ODD_PROMPTS),
                kind=rng.choice(("", "a", "b" * 10_000)),
                cold_seconds=rng.choice((0.0, 1e-9, 1e9)),
                deadline=rng.choice((INFINITY, fleet.now + 1e6)),
                priority=rng.choice((0, -(10**9), 10**9)),
            )
            fleet.advance(fleet.now + rng.choice((0.0, 0.01)))
        fleet.wind_down()

    def test_it_can_take_over_with_requests_in_flight(self) -> None:
        # These three leave the most different things in the notes.
        for earlier in ("weighted_round_robin", "peak_ewma", "prequal"):
            fleet = _SimulatedFleet(make_policy(earlier, Random(1), {}), 5)
            fleet.traffic(40, load=4.0)
            fleet.balancer.remove_replica("r0", now=fleet.now)
            fleet.balancer.report("r1", Event.DRAIN, now=fleet.now)
            fleet.balancer.set_policy("", self.policy, self.options, now=fleet.now)
            fleet.traffic(40, load=4.0)
            fleet.balancer.report("r1", Event.UNDRAIN, now=fleet.now)
            fleet.balancer.report("r1", Event.LOADED, now=fleet.now)
            fleet.traffic(40, load=4.0)
            fleet.balancer.set_policy("", earlier, now=fleet.now)
            fleet.traffic(40, load=4.0)
            fleet.wind_down()

    # ------------------------------------------------------------------ inside

    def _needs(self, claim: str) -> None:
        if not getattr(self, claim):
            raise SkipTest(f"{self.policy} does not claim {claim}")

    def _fleet(
        self,
        count: int,
        *,
        seed: int = 1,
        watch: type[_CheckedChoice] | None = None,
        weights: Sequence[float] = (),
        **options: Any,
    ) -> _SimulatedFleet:
        """`options`: of the pool."""
        make_policy(self.policy, Random(seed), self.options)  # says what is wrong with name or options
        kind = type("Watched", (watch or _CheckedChoice, find_policy(self.policy)), {"named": self.policy})
        policy: Policy = kind(Random(seed), **self.options)
        defaults = {"outlier_detection": NO_EJECTION, "retry": NO_RETRIES, "slow_start": 0.0}
        pool = PoolOptions(**{**defaults, **options})
        return _SimulatedFleet(policy, count, seed=seed, weights=weights, options=pool)

    def _check_even(self, fleet: _SimulatedFleet, what: str, alike: Sequence[str]) -> None:
        fair = max(1, len(fleet.order)) / len(fleet.replicas)
        mean = sum(fleet.picked[id] for id in alike) / len(alike)
        for id in alike:
            off = (fleet.picked[id] - mean) / fair
            assert abs(off) <= MAX_UNEVENNESS, (
                f"{self.policy}: {what} should get even shares; {id} got {fleet.picked[id]} of {len(fleet.order)}, "
                f"{abs(off):.0%} of a fair share {'over' if off > 0 else 'under'} the others"
            )


def check_policy(name: str, *, respects_weights: bool = True, evens_out: bool = True, **options: Any) -> None:
    """Runs every check without pytest; AssertionError says what does not hold."""
    claims = {"policy": name, "options": options, "respects_weights": respects_weights, "evens_out": evens_out}
    suite = type("Suite", (PolicyConformance,), claims)()
    for check in [name for name in vars(PolicyConformance) if name.startswith("test_")]:
        try:
            getattr(suite, check)()
        except SkipTest:
            continue
        except AssertionError:
            raise
        except Exception as problem:
            sentence = check.removeprefix("test_").replace("_", " ")
            raise AssertionError(f"{name}: in the check that {sentence}: {problem!r}") from problem


class _SimulatedFleet:
    """Carries out what a balancer decides, over replicas that all take `SERVICE_SECONDS`."""

    def __init__(
        self,
        policy: Policy,
        count: int,
        *,
        seed: int = 1,
        weights: Sequence[float] = (),
        options: PoolOptions | None = None,
    ) -> None:
        self.now = 1.0
        self.failing: set[str] = set()
        self.picked: Counter[str] = Counter()
        self.order: list[str] = []  # the replicas chosen, one after the other
        self.refused: list[Reject] = []
        self._rng = Random(seed + 1000)
        self._ends: list[tuple[float, int, Request, Outcome | None]] = []  # None: its answer begins
        self._sent = 0
        self._submitted: list[Request] = []
        self.balancer = Balancer(Random(seed))
        self.pool: Pool = self.balancer.add_model("", "round_robin", options or PoolOptions(), now=self.now)
        self.pool.use_policy(policy, self.now)
        for i in range(count):
            self.balancer.add_replica(f"r{i}", weight=weights[i] if weights else 1.0, now=self.now)
        self.replicas: list[Replica] = list(self.pool.replicas.values())

    def submit(self, **fields: Any) -> Decision:
        if "key" not in fields:
            fields["key"] = str(self._rng.random())  # a session of its own, so that hashing is even
        if "prompt" not in fields:
            fields["prompt"] = Prompt(PROMPT_BYTES, (int(self._rng.random() * 2**64),))
        request = Request(**fields)
        self._submitted.append(request)
        decision = self.balancer.submit(request, self.now)
        self._carry_out([decision])
        return decision

    def traffic(self, requests: int, *, load: float) -> None:
        """Requests at a rate that keeps `load` of them on each replica, on average."""
        gap = SERVICE_SECONDS / (load * len(self.replicas))
        for _ in range(requests):
            # Even gaps would keep step with departures.
            self.advance(self.now + gap * (0.5 + self._rng.random()))
            self.submit()

    def advance(self, until: float) -> None:
        """Everything due happens, in order: ends of requests, and expiries."""
        while True:
            end = self._ends[0][0] if self._ends else INFINITY
            when = min(end, self.balancer.wake)
            if when > until:
                break
            self.now = max(self.now, when)
            if self.balancer.wake <= self.now:
                self._carry_out(self.balancer.expire(self.now))
            else:
                _, _, request, outcome = heappop(self._ends)
                if outcome is not None:
                    self._carry_out(self.balancer.finish(request, outcome, self.now))
                elif request.attempt is not None:
                    self.balancer.response_started(request, request.attempt.replica, self.now)
        self.now = until

    def wind_down(self) -> None:
        """All that runs or waits ends, and nothing is left behind."""
        for _ in range(1000):
            if not self._ends and not self._waiting():
                break
            self.advance(self.now + SERVICE_SECONDS)
        left = [request for request in self._submitted if request.phase is not RequestPhase.DONE]
        assert not left, f"{left[0]} never came to an end"
        for replica in self.replicas:
            assert not replica.in_flight, f"{replica} still counts {replica.in_flight} requests when all are over"
        self._submitted.clear()

    def change(self, rng: Random, step: int) -> None:
        balancer, pool = self.balancer, self.pool
        ids = list(pool.replicas)
        if len(ids) < 3 or (len(ids) < 8 and rng.random() < 0.2):
            decisions = balancer.add_replica(f"new{step}", weight=0.5 + rng.random(), now=self.now)
            self.replicas.append(pool.find(f"new{step}"))
        elif rng.random() < 0.2:
            decisions = balancer.remove_replica(rng.choice(ids), now=self.now)
        elif rng.random() < 0.2:
            decisions = balancer.report_peer_load(rng.choice(ids), int(rng.random() * 3), now=self.now)
        else:
            id = rng.choice(ids)
            seen = (Event.LIVE, Event.LOADED, Event.LOADED, Event.LOST, Event.DRAIN, Event.UNDRAIN)
            legal = [event for event in seen if event in TRANSITIONS[pool.find(id).state]]
            decisions = balancer.report(id, rng.choice(legal), now=self.now)
        self._carry_out(decisions)

    def _waiting(self) -> bool:
        return bool(len(self.pool.queue) or self.pool.preempted)

    def _carry_out(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Send):
                id = decision.replica.id
                self.picked[id] += 1
                self.order.append(id)
                self._sent += 1
                failing = id in self.failing
                end = self.now + (ERROR_SECONDS if failing else SERVICE_SECONDS)
                outcome = Outcome.ERROR if failing else Outcome.OK
                heappush(self._ends, (end, self._sent, decision.request, outcome))
                if self.pool.wants_first_byte and not failing:
                    heappush(self._ends, (self.now + FIRST_BYTE_SECONDS, -self._sent, decision.request, None))
            elif isinstance(decision, Reject):
                self.refused.append(decision)


class _CheckedChoice(Policy):
    """Mixed in before the policy under test: checks every choice."""

    named: ClassVar[str]

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        before = list(candidates)
        choice = super().choose(request, candidates, now)
        assert list(candidates) == before, f"{self.named}: choose changed the list of candidates"
        assert any(choice is replica for replica in before), (
            f"{self.named}: choose returned {choice!r}, which is none of the {len(before)} candidates"
        )
        return choice


def _hands_off_hook(name: str) -> Any:
    def hook(self: _CheckedPolicy, *args: Any) -> Any:
        with self._hands_off(name):
            return getattr(super(_CheckedPolicy, self), name)(*args)

    return hook


class _CheckedPolicy(_CheckedChoice):
    """Also compares all replicas before and after every call. Slow, so used only where that is the question."""

    _guarded: Pool | None = None

    def attach(self, pool: Pool) -> None:
        self._guarded = pool
        with self._hands_off("attach"):
            super().attach(pool)

    def choose(self, request: Request, candidates: Sequence[Replica], now: float) -> Replica:
        before = {name: getattr(request, name) for name in _slots(Request)}
        with self._hands_off("choose"):
            choice = super().choose(request, candidates, now)
        for name, value in before.items():
            after = getattr(request, name)  # compiled classes make a new number each time
            assert after is value or after == value, f"{self.named}: choose changed {name!r} of the request"
        return choice

    patience, joined, left, sent, finished = map(_hands_off_hook, ("patience", "joined", "left", "sent", "finished"))
    first_byte, released = map(_hands_off_hook, ("first_byte", "released"))

    def tick(self, members: Sequence[Replica], now: float) -> None:
        before = list(members)
        with self._hands_off("tick"):
            super().tick(members, now)
        assert list(members) == before, f"{self.named}: tick changed the list of members"

    @contextmanager
    def _hands_off(self, hook: str) -> Iterator[None]:
        replicas = list(self._guarded.replicas.values()) if self._guarded is not None else []
        before = [_fields(replica) for replica in replicas]
        yield
        for replica, fields in zip(replicas, before, strict=True):
            after = _fields(replica)
            changed = [name for name in fields if fields[name] != after[name] and name != "cost"]
            assert not changed, (
                f"{self.named}: {hook} changed {changed[0]!r} of a replica; only `notes` and `cost` are its own"
            )


def _fields(replica: Replica) -> dict[str, object]:
    return {name: _frozen(getattr(replica, name)) for name in _slots(Replica) if name != "notes"}


def _frozen(value: object) -> object:
    """A copy to compare with, as deep as a replica's bookkeeping."""
    if isinstance(value, dict):
        return tuple(value.items())
    slots = _slots(type(value))
    if slots and not isinstance(value, Enum | Attempt):  # an attempt leads back to its replica
        return tuple(_frozen(getattr(value, name)) for name in slots)
    return value


def _slots(kind: type) -> tuple[str, ...]:
    """Compiled classes have no `__slots__`, but a descriptor for each."""
    if not kind.__module__.startswith("steelyard."):
        return ()
    if "__slots__" in vars(kind):
        return tuple(vars(kind)["__slots__"])
    descriptors = [name for name, value in vars(kind).items() if isinstance(value, GetSetDescriptorType)]
    return tuple(name for name in descriptors if name[:2] != "__")
