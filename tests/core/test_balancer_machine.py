"""Random histories of everything that can happen to a balancer. After each step its accounts match the driver's.

The machine plays the driver: it carries out decisions, keeps its own list of what runs where, and calls `expire` no
later than it was told to.
"""

from collections import Counter
from math import isclose
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.core.balancer import Balancer
from steelyard.core.decision import Cancel, Reject, Send, Wait
from steelyard.core.errors import IllegalTransitionError, MisuseError
from steelyard.core.options import HedgeOptions, OutlierDetectionOptions, PoolOptions, RetryOptions
from steelyard.core.outcome import Outcome
from steelyard.core.policies import POLICIES
from steelyard.core.policies.least_work import LeastWork
from steelyard.core.policies.prefix_work import PrefixWork
from steelyard.core.prompt import Prompt
from steelyard.core.replica import TRANSITIONS, Event, State
from steelyard.core.request import INFINITY, Request, RequestPhase

MODELS = ("small", "large")
ANY = st.integers(0, 10**6)  # "any of them": an index, taken modulo how many there are
SECONDS = st.sampled_from([0.0, 0.001, 0.05, 0.3, 1.0, 4.0])
PROMPTS = [None, Prompt(300), Prompt(5_000, (1, 2)), Prompt(9_000, (1, 3, 4, 5)), Prompt(0, (), 700.0)]
FAILURES = [outcome for outcome in Outcome if outcome.failed]


class Driver(RuleBasedStateMachine):
    @initialize(
        concurrency=st.sampled_from([1, 2, 3, "unlimited", "auto"]),
        queue=st.sampled_from([0, 2, 6]),
        policy=st.sampled_from(list(POLICIES)),
        hedge=st.booleans(),
        hold=st.booleans(),
        warm_keys=st.sampled_from([0, 2]),
        replicas=st.sampled_from([3, 2, 1, 5, 0]),
        slow=st.booleans(),
    )
    def open_for_business(self, concurrency, queue, policy, hedge, hold, warm_keys, replicas, slow):
        self.now = 100.0
        self.balancer = Balancer(Random(1))
        self.requests = []
        self.waiting = []
        self.running = []  # (request, replica), an entry for each attempt
        self.ends = Counter()
        self.replicas = []  # all there ever were
        self.names = 0
        options = PoolOptions(
            concurrency=concurrency,
            max_queue=queue,
            queue_timeout=3.0,
            wait_for_ready=hold,
            slow_start=2.0,
            warm_keys=warm_keys,
            outlier_detection=OutlierDetectionOptions(
                consecutive_failures=2, base_ejection_time=2.0, max_ejection_time=6.0, slow_duration=1.0
            ),
            retry=RetryOptions(initial_tokens=10.0),
            hedge=HedgeOptions(enabled=hedge, budget=1.0),
        )
        for model in MODELS:
            self.balancer.add_model(model, policy, options, now=self.now)
            for i in range(replicas):
                self.add(model, 0.1 if slow and i == 0 else 1.0, State.READY)

    # ------------------------------------------------------------------ what a driver does

    def carry_out(self, decisions):
        for decision in decisions:
            request = decision.request
            if isinstance(decision, Send):
                self.sent(request, decision.replica)
            elif isinstance(decision, Wait):
                assert request not in self.waiting
                self.waiting.append(request)
            elif isinstance(decision, Reject):
                assert decision.retry_after >= 0.0
                self.over(request)
            else:
                assert isinstance(decision, Cancel)
                self.running.remove((request, decision.replica))

    def sent(self, request, replica):
        pool = self.balancer.pool(request.model)
        assert replica.state is State.READY or (replica.state is State.EJECTED and pool.panicking)
        assert replica in pool.members
        assert replica.load <= replica.limit
        assert (request, replica) not in self.running
        if request in self.waiting:
            self.waiting.remove(request)
        self.running.append((request, replica))

    def over(self, request):
        if request in self.waiting:
            self.waiting.remove(request)
        self.ends[request] += 1

    def wake_up(self):
        """Never later than promised, and once is enough."""
        if self.balancer.wake <= self.now:
            self.carry_out(self.balancer.expire(self.now))
            assert self.balancer.wake > self.now

    def add(self, model, weight, state):
        self.names += 1
        decisions = self.balancer.add_replica(f"r{self.names}", model, weight=weight, state=state, now=self.now)
        self.replicas.append(self.balancer.pool(model).find(f"r{self.names}"))
        self.carry_out(decisions)

    def pick(self, model, i):
        """Any replica of the model, or None."""
        replicas = list(self.balancer.pool(model).replicas.values())
        return replicas[i % len(replicas)] if replicas else None

    def accounts(self):
        """Everything a misuse must leave as it is."""
        return (
            [(r.phase, r.attempt_count, r.attempt, r.hedge) for r in self.requests],
            [
                (r.state, r.in_flight, r.load, r.outstanding_work, r.slowness, r.failures, r.successes)
                for r in self.replicas
            ],
            [
                (p.active, p.finished, p.retry_budget.tokens, p.queue.work, list(p.queue.ordered()))
                for p in self.pools()
            ],
        )

    def pools(self):
        return [self.balancer.pool(model) for model in MODELS]

    # ------------------------------------------------------------------ requests

    @rule(
        model=st.sampled_from(MODELS),
        count=st.integers(1, 6),
        tenant=st.sampled_from(["", "x", "y"]),
        priority=st.sampled_from([0, 1, 5]),
        patience=st.sampled_from([INFINITY, INFINITY, INFINITY, 5.0, 1.5, 0.1]),
        features=st.sampled_from([(), (1.0,), (50.0,)]),
        key=st.sampled_from([None, "k", "l", "m"]),
        idempotent=st.booleans(),
        prompt=st.sampled_from(PROMPTS),
        streams=st.booleans(),
        after=SECONDS,
    )
    def submit(self, model, count, tenant, priority, patience, features, key, idempotent, prompt, streams, after):
        """Some requests at once: lines and limits are reached by crowds."""
        self.let_pass(after)
        for _ in range(count):
            request = Request(
                model,
                features,
                id=str(len(self.requests)),
                tenant=tenant,
                priority=priority,
                deadline=self.now + patience,
                key=key,
                cold_seconds=0.5,
                idempotent=idempotent,
                prompt=prompt,
                streams=streams,
            )
            self.requests.append(request)
            decision = self.balancer.submit(request, self.now)
            assert decision.request is request
            self.carry_out([decision])

    @rule(model=st.sampled_from([*MODELS, "unknown"]))
    def submit_what_makes_no_sense(self, model):
        request = Request(model, deadline=self.now - 1.0)
        self.requests.append(request)
        decision = self.balancer.submit(request, self.now)
        assert isinstance(decision, Reject)
        self.carry_out([decision])

    @precondition(lambda self: self.running)
    @rule(i=ANY, outcome=st.sampled_from([Outcome.OK, Outcome.OK, *Outcome]), after=SECONDS, count=st.integers(1, 4))
    def finish(self, i, outcome, after, count):
        self.let_pass(after)
        for _ in range(count):
            if self.running:
                self.end_attempt(*self.running[i % len(self.running)], outcome)

    @precondition(lambda self: self.running)
    @rule(i=ANY, after=SECONDS)
    def begin_answer(self, i, after):
        self.let_pass(after)
        if self.running:
            request, replica = self.running[i % len(self.running)]
            self.carry_out(self.balancer.response_started(request, replica, self.now))

    def end_attempt(self, request, replica, outcome):
        hedged = request.hedge is not None
        self.running.remove((request, replica))
        decisions = self.balancer.finish(request, outcome, self.now, replica=replica if hedged else None)
        mine = [decision for decision in decisions if decision.request is request]
        if hedged:
            # A failure leaves the other attempt to decide; anything else ends both.
            over = any(isinstance(decision, Cancel) for decision in mine)
            assert over == (outcome not in FAILURES or outcome is Outcome.TRUNCATED)
        else:
            over = not mine
            assert over or (outcome in FAILURES and len(mine) == 1)
        if over:
            self.over(request)
        self.carry_out(decisions)

    @precondition(lambda self: self.running)
    @rule(i=ANY, outcome=st.sampled_from(FAILURES))
    def fail_everything_on_a_replica(self, i, outcome):
        """A crash; often enough to eject it."""
        self.wake_up()
        if not self.running:
            return
        _, replica = self.running[i % len(self.running)]
        for request, where in list(self.running):
            if where is replica and (request, where) in self.running:
                self.end_attempt(request, where, outcome)

    @precondition(lambda self: self.running or self.waiting)
    @rule(i=ANY, after=SECONDS)
    def cancel(self, i, after):
        self.let_pass(after)
        there = [*self.waiting, *dict.fromkeys(request for request, _ in self.running)]
        if there:
            request = there[i % len(there)]
            decisions = self.balancer.cancel(request, self.now)
            self.over(request)
            self.carry_out(decisions)

    # ------------------------------------------------------------------ time

    @rule(seconds=st.sampled_from([0.01, 0.5, 2.0, 8.0]))
    def let_pass(self, seconds):
        """Time goes by, and the driver wakes the balancer each time it asked for it."""
        until = self.now + seconds
        while self.balancer.wake <= until:
            self.now = max(self.now, self.balancer.wake)
            self.wake_up()
        self.now = until

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0]))
    def oversleep(self, seconds):
        """A driver that was held up calls late."""
        self.now += seconds
        self.wake_up()

    @rule()
    def call_too_early(self):
        before = self.accounts()
        if self.now < self.balancer.wake:
            assert list(self.balancer.expire(self.now)) == []
            assert self.accounts() == before

    # ------------------------------------------------------------------ the fleet

    @rule(
        model=st.sampled_from(MODELS),
        weight=st.sampled_from([0.2, 1.0, 3.0]),
        state=st.sampled_from(["ready", "starting"]),
    )
    def add_replica(self, model, weight, state):
        self.wake_up()
        if len(self.balancer.pool(model).replicas) < 8:
            self.add(model, weight, State(state))

    @rule(model=st.sampled_from(MODELS), i=ANY)
    def remove_replica(self, model, i):
        self.wake_up()
        replica = self.pick(model, i)
        if replica is not None:
            self.carry_out(self.balancer.remove_replica(replica.id, model, now=self.now))

    @rule(
        model=st.sampled_from(MODELS),
        i=ANY,
        event=st.sampled_from(
            [Event.LOADED, Event.LOADED, Event.LOADED, Event.LIVE, Event.LOST, Event.DRAIN, Event.UNDRAIN]
        ),
    )
    def report(self, model, i, event):
        self.wake_up()
        replica = self.pick(model, i)
        if replica is None:
            return
        if event in TRANSITIONS[replica.state]:
            self.carry_out(self.balancer.report(replica.id, event, model, now=self.now))
        else:
            before = self.accounts()
            with pytest.raises(IllegalTransitionError):
                self.balancer.report(replica.id, event, model, now=self.now)
            assert self.accounts() == before

    @rule(model=st.sampled_from(MODELS), i=ANY, weight=st.sampled_from([0.1, 1.0, 7.0]))
    def set_weight(self, model, i, weight):
        replica = self.pick(model, i)
        if replica is not None:
            self.balancer.set_weight(replica.id, weight, model, now=self.now)

    @rule(model=st.sampled_from(MODELS), i=ANY, count=st.sampled_from([0, 0, 1, 3]))
    def report_outside(self, model, i, count):
        self.wake_up()
        replica = self.pick(model, i)
        if replica is not None:
            self.carry_out(self.balancer.report_peer_load(replica.id, count, model, now=self.now))

    @rule(model=st.sampled_from(MODELS), policy=st.sampled_from(list(POLICIES)))
    def set_policy(self, model, policy):
        self.carry_out(self.balancer.set_policy(model, policy, now=self.now) or ())
        # What waited for the old policy's reasons goes with the next event, such as this report that changes nothing.
        replica = self.pick(model, 0)
        if replica is not None:
            self.carry_out(self.balancer.report_peer_load(replica.id, replica.other_load, model, now=self.now))

    # ------------------------------------------------------------------ misuse

    @precondition(lambda self: any(r.phase is RequestPhase.DONE for r in self.requests))
    @rule(i=ANY, outcome=st.sampled_from(Outcome))
    def end_twice(self, i, outcome):
        done = [r for r in self.requests if r.phase is RequestPhase.DONE]
        request = done[i % len(done)]
        before = self.accounts()
        with pytest.raises(MisuseError):
            self.balancer.finish(request, outcome, self.now)
        with pytest.raises(MisuseError):
            self.balancer.cancel(request, self.now)
        with pytest.raises(MisuseError):
            self.balancer.submit(request, self.now)
        assert self.accounts() == before

    @precondition(lambda self: self.waiting)
    @rule(i=ANY)
    def finish_what_waits(self, i):
        before = self.accounts()
        with pytest.raises(MisuseError):
            self.balancer.finish(self.waiting[i % len(self.waiting)], Outcome.OK, self.now)
        assert self.accounts() == before

    @precondition(lambda self: self.running)
    @rule(i=ANY, j=ANY)
    def finish_somewhere_else(self, i, j):
        request, _ = self.running[i % len(self.running)]
        elsewhere = [r for r in self.replicas if (request, r) not in self.running]
        if elsewhere:
            before = self.accounts()
            with pytest.raises(MisuseError):
                self.balancer.finish(request, Outcome.OK, self.now, replica=elsewhere[j % len(elsewhere)])
            assert self.accounts() == before

    # ------------------------------------------------------------------ what must hold

    @invariant()
    def every_request_is_in_one_place(self):
        attempts = Counter(request for request, _ in self.running)
        waiting = set(self.waiting)
        assert len(waiting) == len(self.waiting)
        for request in self.requests:
            assert request.phase is not RequestPhase.NEW
            assert (request.phase is RequestPhase.WAITING) == (request in waiting)
            assert (request.phase is RequestPhase.RUNNING) == (attempts[request] > 0)
            assert (request.phase is RequestPhase.DONE) == (self.ends[request] == 1)
            assert self.ends[request] <= 1
            assert attempts[request] == (request.attempt is not None) + (request.hedge is not None)

    @invariant()
    def loads_are_what_the_driver_has_running(self):
        attempts = Counter(replica for _, replica in self.running)
        for replica in self.replicas:
            assert replica.in_flight == attempts[replica] == len(replica.running_attempts)
            assert replica.load == replica.in_flight + replica.other_load
            work = sum(attempt.seconds_alone for attempt in replica.running_attempts)
            assert isclose(replica.outstanding_work, work, rel_tol=1e-6, abs_tol=1e-9)
            if not replica.in_flight:
                assert replica.outstanding_work == 0.0
        assert sum(pool.active for pool in self.pools()) == len(self.running)

    @invariant()
    def the_lines_hold_who_waits(self):
        for pool in self.pools():
            line = list(pool.queue.ordered())
            assert len(line) == len(pool.queue) <= pool.options.max_queue
            mine = {request for request in self.waiting if request.model == pool.model}
            assert {*line, *pool.preempted} == mine
            assert len(line) + len(pool.preempted) == len(mine)
            assert isclose(pool.queue.work, sum(request.base for request in line), rel_tol=1e-6, abs_tol=1e-9)

    @invariant()
    def members_and_open_are_kept_up_to_date(self):
        for pool in self.pools():
            states = {State.READY, State.EJECTED} if pool.panicking else {State.READY}
            assert pool.members == [r for r in pool.replicas.values() if r.state in states]
            assert pool.open == [r for r in pool.members if r.load < r.limit and not r.suspended]
            assert not pool.members or not all(r.suspended for r in pool.members), "suspicion has emptied the pool"
            ready = sum(r.state is State.READY for r in pool.replicas.values())
            ejected = any(r.state is State.EJECTED for r in pool.replicas.values())
            # Who starts, loads or drains is not missing: no reason to panic.
            expected = sum(r.state in (State.READY, State.EJECTED, State.UNREACHABLE) for r in pool.replicas.values())
            assert pool.panicking == (ejected and ready < pool.options.outlier_detection.panic_threshold * expected)

    @invariant()
    def nobody_waits_beside_an_open_replica(self):
        """But for least_work, which may wait for a better one, and for retries, which must not go back."""
        for pool in self.pools():
            if isinstance(pool.policy, LeastWork):
                continue
            for request in pool.queue.ordered():
                for replica in pool.open:
                    assert replica in request.avoid
                    assert any(r not in request.avoid for r in pool.members)

    @invariant()
    def tokens_of_prompts_are_those_of_what_runs(self):
        for pool in self.pools():
            if not isinstance(pool.policy, PrefixWork):
                continue
            blocks = 0
            for replica in pool.replicas.values():
                counted = [a.notes for a in replica.running_attempts if a.notes is not None]
                load = replica.notes
                if load is None:
                    assert not counted
                    continue
                to_read = [attempt.uncached for attempt in counted if not attempt.answering]
                assert (load.attempts, load.prompts) == (len(counted), len(to_read))
                assert isclose(load.uncached_tokens, sum(to_read), rel_tol=1e-6)
                assert isclose(load.context_tokens, sum(a.tokens for a in counted), rel_tol=1e-6)
                assert set(load.silent) == {a for a in counted if a.due < INFINITY}
                blocks += pool.policy.prefill.index.blocks_of(load.slot)
            assert pool.policy.prefill.index.entries == blocks

    @invariant()
    def the_balancer_will_wake_in_time(self):
        for pool in self.pools():
            assert self.balancer.wake <= pool.tick_at
            assert self.balancer.wake <= pool.queue.next_expiry()
            assert self.balancer.wake <= pool.recheck_at
            if pool.preempted:
                assert self.balancer.wake <= self.now

    @invariant()
    def what_is_learned_stays_sane(self):
        for replica in self.replicas:
            assert 0.0 < replica.slowness < INFINITY
            assert 0.0 < replica.effective_weight <= replica.weight * (1 + 1e-9)
        for pool in self.pools():
            assert 0.0 < pool.estimator.typical_seconds < INFINITY
            assert 0.0 <= pool.time_to_drain() < INFINITY
            assert pool.retry_budget.tokens >= 0.0
            assert pool.hedge_budget.seconds_left >= 0.0

    def check(self):
        self.every_request_is_in_one_place()
        self.loads_are_what_the_driver_has_running()
        self.the_lines_hold_who_waits()
        self.members_and_open_are_kept_up_to_date()
        self.nobody_waits_beside_an_open_replica()
        self.tokens_of_prompts_are_those_of_what_runs()
        self.the_balancer_will_wake_in_time()
        self.what_is_learned_stays_sane()

    def teardown(self):
        """Let everything come to its end: nothing may be left."""
        if not hasattr(self, "balancer"):
            return
        while self.running or self.waiting:
            if self.running:
                self.end_attempt(*self.running[0], Outcome.OK)
            else:
                self.let_pass(5.0)
        self.check()
        assert all(self.ends[request] == 1 for request in self.requests)
        assert all(pool.active == 0 and pool.queue.work == 0.0 for pool in self.pools())


TestHistories = Driver.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=50, report_multiple_bugs=False)


@pytest.mark.parametrize("seed", range(12))
def test_a_long_history_leaves_nothing_behind(seed):
    """Hypothesis finds short stories; some things need a long one: a full bucket, a third ejection, learned sizes."""
    rng = Random(seed)
    driver = Driver()
    driver.open_for_business(
        concurrency=rng.choice([1, 2, 3, "unlimited", "auto"]),
        queue=rng.choice([3, 6]),
        policy=rng.choice(list(POLICIES)),
        hedge=seed % 2 == 0,
        hold=rng.random() < 0.3,
        warm_keys=rng.choice([0, 2]),
        replicas=4,
        slow=rng.random() < 0.5,
    )

    def one(*values):
        return rng.choice(values)

    def any_of_them():
        return rng.randrange(10**6)

    def model():
        return one(*MODELS)

    def submit():
        driver.submit(
            model=model(),
            count=one(1, 1, 2, 6),
            tenant=one("", "x", "y"),
            priority=one(0, 0, 0, 1, 5),
            patience=one(INFINITY, INFINITY, INFINITY, 30.0, 5.0, 1.0),
            features=one((), (1.0,), (50.0,)),
            key=one(None, "k", "l", "m"),
            idempotent=rng.random() < 0.8,
            prompt=one(*PROMPTS),
            streams=rng.random() < 0.8,
            after=one(0.0, 0.01, 0.3),
        )

    def finish():
        if driver.running:
            outcome = Outcome.OK if rng.random() < 0.85 else rng.choice(list(Outcome))
            driver.finish(i=any_of_them(), outcome=outcome, after=one(0.001, 0.1, 0.5), count=one(1, 2, 4))

    def begin():
        if driver.running:
            driver.begin_answer(i=any_of_them(), after=one(0.0, 0.01))

    def cancel():
        if driver.running or driver.waiting:
            driver.cancel(i=any_of_them(), after=0.0)

    def fail():
        if driver.running:
            driver.fail_everything_on_a_replica(i=any_of_them(), outcome=one(*FAILURES))

    def misuse():
        if any(r.phase is RequestPhase.DONE for r in driver.requests):
            driver.end_twice(i=any_of_them(), outcome=one(*Outcome))
        if driver.waiting:
            driver.finish_what_waits(i=any_of_them())
        if driver.running:
            driver.finish_somewhere_else(i=any_of_them(), j=any_of_them())

    def see():
        event = one(*[Event.LOADED] * 5, Event.LIVE, Event.LOST, Event.DRAIN, Event.UNDRAIN)
        driver.report(model=model(), i=any_of_them(), event=event)

    fleet = [
        lambda: driver.add_replica(model=model(), weight=one(0.2, 1.0, 3.0), state=one("ready", "starting")),
        lambda: driver.remove_replica(model=model(), i=any_of_them()),
        lambda: driver.set_weight(model=model(), i=any_of_them(), weight=one(0.1, 1.0, 7.0)),
        lambda: driver.report_outside(model=model(), i=any_of_them(), count=one(0, 0, 1, 3)),
        lambda: driver.set_policy(model=model(), policy=one(*POLICIES)),
        lambda: driver.oversleep(seconds=one(0.5, 3.0, 20.0)),
        see,
        see,
        cancel,
        fail,
        misuse,
    ]
    for _ in range(1000):
        one(submit, begin, finish, finish, lambda: one(*fleet)())()
        driver.check()
    driver.teardown()
