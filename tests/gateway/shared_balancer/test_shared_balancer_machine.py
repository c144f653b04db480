"""Random histories of workers and balancer processes: messages arrive in any order between connections, workers and
balancer processes are killed. A limit of concurrency and a device's memory hold at every moment, no request is passed
over, and nothing is lost.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steelyard.core.options import HedgeOptions, OutlierDetectionOptions, RetryOptions
from steelyard.core.outcome import Outcome
from steelyard.core.request import INFINITY, RequestPhase

from .wired import DEVICE, MODEL, Wired, WiredWorker

ANY = st.integers(0, 10**6)  # "any of them": an index, taken modulo how many there are
REQUESTS_LEARNED = 16  # before that no attempt is known to be late
FAILURES = [outcome for outcome in Outcome if outcome.failed]


class SharedBalancer(RuleBasedStateMachine):
    @initialize(
        workers=st.integers(2, 4),
        replicas=st.integers(1, 3),
        limit=st.integers(1, 2),
        hedge=st.booleans(),
        retry=st.booleans(),
        policy=st.sampled_from(["least_work", "least_connections"]),
        device_bytes=st.sampled_from([0, 0, 100]),
        max_queue=st.sampled_from([1, 3, 100, 100]),
        in_order=st.booleans(),
    )
    def start(self, workers, replicas, limit, hedge, retry, policy, device_bytes, max_queue, in_order):
        """`in_order`: nothing happens for which a request may go before one that came earlier."""
        if in_order:
            hedge, retry, policy, device_bytes, max_queue = False, False, "least_connections", 0, 100
        self.in_order = in_order
        self.limit = limit
        self.stage = Wired(
            workers,
            [f"r{n}" for n in range(replicas)],
            policy,
            device_bytes,
            concurrency=limit,
            max_queue=max_queue,
            queue_timeout=1e6,
            outlier_detection=OutlierDetectionOptions(enabled=False),
            hedge=HedgeOptions(enabled=hedge, budget=1.0),
            retry=RetryOptions(initial_tokens=50.0, max_tokens=50.0) if retry else RetryOptions(max_attempts=1),
        )
        self.stage.on_send = self.sent
        self.submitted = []  # (worker, request), those of living workers
        if hedge and replicas > 1:
            self.stage.learn(REQUESTS_LEARNED)

    def worker(self, i) -> WiredWorker:
        return self.stage.workers[i % len(self.stage.workers)]

    def sent(self, worker, request, replica):
        """The moment at which a slot is really taken."""
        assert self.stage.running()[replica.id] <= self.limit

    # ------------------------------------------------------------------ what happens

    @rule(i=ANY, size=st.sampled_from([10.0, 30.0, 60.0]), seconds=st.sampled_from([INFINITY, INFINITY, 1.0]))
    def submit(self, i, size, seconds):
        worker = self.worker(i)
        deadline = self.stage.now + seconds if not self.in_order else INFINITY
        self.submitted.append((worker, worker.submit(features=(size,), deadline=deadline)))

    @precondition(lambda self: self.stage.server is not None and any(w.up for w in self.stage.workers))
    @rule(i=ANY)
    def a_message_arrives_at_the_balancer(self, i):
        talking = [worker for worker in self.stage.workers if worker.up]
        self.stage.deliver(talking[i % len(talking)])

    @precondition(lambda self: any(w.down for w in self.stage.workers))
    @rule(i=ANY)
    def a_message_arrives_at_a_worker(self, i):
        listening = [worker for worker in self.stage.workers if worker.down]
        listening[i % len(listening)].hear()

    @precondition(lambda self: any(w.running for w in self.stage.workers))
    @rule(i=ANY, outcome=st.sampled_from([Outcome.OK, Outcome.OK, Outcome.OK, Outcome.CLIENT_ERROR, *FAILURES]))
    def an_attempt_ends(self, i, outcome):
        running = [(worker, *attempt) for worker in self.stage.workers for attempt in worker.running]
        worker, request, replica = running[i % len(running)]
        cut_off = outcome.failed and request in worker.answering
        worker.finish(request, replica, Outcome.TRUNCATED if cut_off else outcome)

    @precondition(lambda self: any(w.running for w in self.stage.workers))
    @rule(i=ANY)
    def an_answer_begins(self, i):
        running = [(worker, *attempt) for worker in self.stage.workers for attempt in worker.running]
        worker, request, replica = running[i % len(running)]
        worker.answer_begins(request, replica)

    @precondition(lambda self: self.submitted)
    @rule(i=ANY)
    def a_client_leaves(self, i):
        worker, request = self.submitted[i % len(self.submitted)]
        if worker in self.stage.workers and request.phase is not RequestPhase.DONE:
            worker.cancel(request)

    @rule(seconds=st.sampled_from([0.001, 0.05, 0.3, 1.5]))
    def time_passes(self, seconds):
        self.stage.now += seconds
        self.stage.orphans.tick(self.stage.now)
        if self.stage.server is not None:
            self.stage.server.expire(self.stage.now)
        for worker in self.stage.workers:
            worker.expire()

    @precondition(lambda self: not self.in_order)
    @rule(i=ANY, j=ANY)
    def a_worker_is_not_told_of_a_replica_yet(self, i, j):
        self.worker(i).forget(self.stage.ids[j % len(self.stage.ids)])

    @rule(i=ANY)
    def a_worker_is_told_of_all_replicas(self, i):
        self.worker(i).know_all()

    @precondition(lambda self: len(self.stage.workers) > 1)
    @rule(i=ANY, really=st.integers(0, 3))
    def a_worker_is_killed(self, i, really):
        if not really:
            self.stage.kill_worker(self.worker(i))

    @precondition(lambda self: self.stage.server is not None and not self.in_order)
    @rule(really=st.integers(0, 3))
    def the_balancer_process_is_killed(self, really):
        if not really:
            self.recover = self.stage.pids()  # some of these may be killed as well before the next one starts
            self.stage.kill_balancer()

    @precondition(lambda self: self.stage.server is None)
    @rule()
    def another_balancer_process_starts(self):
        self.stage.start_balancer(recover=self.recover)

    @rule()
    def the_supervisor_hears_what_runs_on(self):
        self.stage.tell_supervisor()

    @rule()
    def all_messages_arrive(self):
        self.stage.settle()

    @rule()
    def all_is_heard(self):
        """Then no request waits beside a free slot."""
        for worker in self.stage.workers:
            worker.know_all()
        self.stage.settle()
        if self.stage.server is None:
            return
        self.stage.now += 1.1  # no recovery goes on
        self.stage.settle()
        free = {id for id, count in self.stage.running().items() if count < self.limit}
        pool = self.stage.balancer.pool(MODEL)
        waiting = list(pool.queue.ordered())
        assert len(waiting) == sum(len(worker.waiting) for worker in self.stage.workers)
        patient = pool.recheck_at < 1e9  # waits for a better replica, of its own will
        for_memory = bool(self.stage.device_bytes)
        assert patient or for_memory or all(free <= {replica.id for replica in r.avoid} for r in waiting)
        assert self.stage.loads() == self.stage.running()

    # ------------------------------------------------------------------ what holds

    @invariant()
    def no_replica_has_more_than_its_limit(self):
        if hasattr(self, "stage"):
            assert max(self.stage.running().values()) <= self.limit

    @invariant()
    def a_device_never_has_more_than_its_memory(self):
        if hasattr(self, "stage") and self.stage.device_bytes:
            assert self.stage.bytes_running() <= self.stage.device_bytes
            assert self.stage.bytes_running() <= self.stage.ledger.total(DEVICE)

    @invariant()
    def no_request_is_passed_over(self):
        if hasattr(self, "stage") and self.in_order:
            places = [self.stage.arrived.index(sent) for sent in self.stage.sent]
            assert places == sorted(places)

    def teardown(self):
        if not hasattr(self, "stage"):
            return
        stage = self.stage
        for worker in stage.workers:
            worker.know_all()
        if stage.server is None:
            stage.start_balancer(recover=self.recover)
        stage.settle()
        living = [(worker, request) for worker, request in self.submitted if worker in stage.workers]
        for _ in range(1000):
            if all(request.phase is RequestPhase.DONE for _, request in living):
                break
            stage.now += 1.1
            stage.settle()
            for worker, request, replica in [(w, *attempt) for w in stage.workers for attempt in w.running]:
                if (request, replica) in worker.running:
                    worker.finish(request, replica)
            stage.settle()
        assert all(request.phase is RequestPhase.DONE for _, request in living)
        assert all(worker.over.count(request) == 1 for worker, request in living), "each ends once"
        assert not any(stage.loads().values())
        assert not stage.balancer.pool(MODEL).active
        assert all(not replica.in_flight for w in stage.workers for replica in w.client.pool(MODEL).replicas.values())
        assert not stage.said, stage.said
        stage.now += 100.0  # what was cut off is surely over
        stage.settle()
        assert (stage.ledger.total(DEVICE), stage.ledger.count(DEVICE)) == (0, 0)


TestSharedBalancer = SharedBalancer.TestCase
TestSharedBalancer.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
