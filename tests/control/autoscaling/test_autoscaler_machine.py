"""Whatever scalers want, workers report, others start and operators configure: what the controller gets stays sound."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from steelyard.control.autoscaling.model_autoscaler import MAX_STEPS
from steelyard.control.replicas.controller import ReplicaCounts
from tests.control.autoscaling.reporting import report
from tests.control.autoscaling.stage import FixedScaler, Stage, configured, scaled

MODES = {
    "fixed": "runtime: {command: 'serve {port}', replicas: 2}",
    "recommend": scaled("mode: recommend, max: 6", "runtime: {command: 'serve {port}', replicas: 2}"),
    "zero": scaled("min: 0, max: 4, scale_to_zero_after: 5s"),
    "some": scaled("min: 2, max: 6"),
    "slow": scaled("min: 1, max: 6, max_added_per_minute: 2, max_removed_per_minute: 1"),
}


class Life(RuleBasedStateMachine):
    @initialize(mode=st.sampled_from(sorted(MODES)), alive=st.integers(0, 5))
    def begin(self, mode, alive):
        self.stage = Stage(m=MODES[mode], other=MODES["fixed"])
        self.stage.controller.counts["m"] = ReplicaCounts(0, alive)
        self.workers = [0, 0]
        self.report()
        self.stage.begin()

    def report(self, waiting=0):
        self.stage.reports = {"m": [report(offered_work=0.1 * n, arrived=n, took={0.1: n}) for n in self.workers]}
        if waiting and self.workers:
            self.stage.reports["m"][0] = report(waiting=waiting, arrived=self.workers[0])

    @rule(mode=st.sampled_from(sorted(MODES)))
    def configure(self, mode):
        self.stage.config = configured(m=MODES[mode], other=MODES["fixed"])
        self.stage.begin()

    @rule(number=st.one_of(st.integers(0, 9), st.sampled_from([-1, 10**9, None, 2.5])))
    def recommend(self, number):
        FixedScaler.number, FixedScaler.problem = number, None

    @rule()
    def fail(self):
        FixedScaler.problem = RuntimeError("out of order")

    @rule(others=st.integers(0, 4))
    def others_start(self, others):
        self.stage.others["m"] = others

    @rule()
    def all_become_ready(self):
        self.stage.controller.all_ready()

    @rule()
    def one_crashes(self):
        ready, starting, _ = self.stage.controller.count("m")
        if ready:
            self.stage.controller.counts["m"] = ReplicaCounts(ready - 1, starting + 1)

    @rule(worker=st.integers(0, 1), more=st.integers(1, 50), waiting=st.integers(0, 3))
    def requests_come(self, worker, more, waiting):
        if worker < len(self.workers):
            self.workers[worker] += more
        self.report(waiting)
        self.stage.reported()

    @rule(workers=st.lists(st.just(0), max_size=3))
    def workers_are_replaced(self, workers):
        self.workers = workers
        self.report()

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds):
        self.stage.turn(min(seconds, 5.0))
        self.stage.now += seconds
        self.stage.scaler.tick(self.stage.now)

    @rule()
    def requests_wait(self):
        self.stage.asks()
        act = self.stage.view().mode == "act"
        assert not act or self.stage.want() or self.stage.ready().get("m")

    @invariant()
    def sound(self):
        scale = self.stage.config.models["m"].autoscale
        runtime = self.stage.config.models["m"].runtime
        want = self.stage.want()
        assert isinstance(want, int)
        if scale is None or scale.mode == "recommend":
            assert want == runtime.replicas
        assert self.stage.want("other") == 2

    @invariant()
    def shown(self):
        view = self.stage.view()
        assert len(view.steps) <= MAX_STEPS
        assert isinstance(view.desired, int)
        assert view.desired >= 0
        assert view.max_replicas is None or view.min_replicas <= view.max_replicas

    @rule()
    def the_most_holds(self):
        """Once it was decided by the rules in force."""
        self.stage.turn(1.5)
        scale = self.stage.config.models["m"].autoscale
        if (
            scale is not None
            and scale.mode == "act"
            and FixedScaler.problem is None
            and isinstance(FixedScaler.number, int)
        ):
            assert self.stage.want() <= scale.max


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
