"""Memory in the balancer: reserved at dispatch, given back at the end, waited for, and never given out twice."""

from random import Random

import pytest

from steelyard.core.balancer import Balancer
from steelyard.core.memory.admission import ANSWERS_BEFORE_UNMEASURED, EARMARK_AFTER_SECONDS
from steelyard.core.memory.ledger import MemoryLedger
from steelyard.core.memory.request_size import RequestSizeModel
from steelyard.core.options import HedgeOptions, PoolOptions, RetryOptions
from steelyard.core.outcome import Outcome
from steelyard.core.replica import Event, State
from steelyard.core.request import Request, RequestPhase

from ..driving import pass_time, refused, runs_on, sent, waits

GIB = 1 << 30


class Shop:
    """Two devices of 10 GiB, a tenth kept free; the models `a` and `b` on both; a request needs a GiB a unit."""

    def __init__(self, policy="least_connections", devices=2, concurrency=float("inf"), per_unit=GIB, **options):
        self.ledger = MemoryLedger()
        self.balancer = Balancer(Random(1), self.ledger)
        for number in range(devices):
            self.ledger.set_device(f"gpu{number}", number, 10 * GIB, 0.1, concurrency)
        self.columns = 0
        for model in "ab":
            sizes = RequestSizeModel(0.0, per_unit)
            self.balancer.add_model(model, policy, PoolOptions(**options), sizes=sizes)
            for number in range(devices):
                self.add(model, number)

    def add(self, model, number, *, base=GIB, permanent=True, state=State.READY):
        device = self.ledger.devices[f"gpu{number}"]
        place = self.ledger.add_residency(device, f"{model}{number}", self.columns, permanent=permanent)
        self.columns += 1
        assert self.ledger.reserve_model(place, base)
        self.balancer.add_replica(f"{model}{number}", model, place=place, state=state, now=0.0)
        return place

    def submit(self, model="a", units=1.0, now=0.0, **fields):
        request = Request(model, (units,), **fields)
        return request, self.balancer.submit(request, now)

    def run(self, model="a", units=1.0, now=0.0, **fields):
        request, decision = self.submit(model, units, now, **fields)
        sent(decision)
        return request

    def reserved(self, number=0):
        return self.ledger.reserved(self.ledger.devices[f"gpu{number}"]) / GIB

    def finish(self, request, now=1.0, outcome=Outcome.OK):
        return [d.request for d in self.balancer.finish(request, outcome, now) if d.request is not request]


def test_it_is_reserved_while_it_runs():
    shop = Shop(devices=1)
    assert shop.reserved() == 2
    request = shop.run(units=3)
    assert shop.reserved() == 5
    shop.finish(request)
    assert shop.reserved() == 2


def test_who_does_not_fit_goes_to_another_device():
    shop = Shop()
    first, second = shop.run(units=5), shop.run(units=5)
    assert {runs_on(first), runs_on(second)} == {"a0", "a1"}
    assert waits(shop.submit(units=5)[1])
    assert runs_on(shop.run(units=2)) in ("a0", "a1")


def test_memory_comes_before_the_policy():
    """The least busy replica has no room: the policy only sees the other."""
    shop = Shop()
    large = shop.run("b", units=6)
    device = int(runs_on(large)[1])
    for _ in range(3):
        assert runs_on(shop.run(units=2)) == f"a{1 - device}"


def test_who_waits_goes_when_another_model_gives_back():
    shop = Shop(devices=1)
    other = shop.run("b", units=6)
    request, decision = shop.submit("a", units=3)
    assert waits(decision)
    assert shop.finish(other) == [request]
    assert request.phase is RequestPhase.RUNNING


def test_who_leaves_gives_back_when_its_server_should_be_done():
    """A server does not stop because nobody listens any more: what it works on is still in its memory."""
    shop = Shop(devices=1)
    for number in range(20):
        shop.finish(shop.run("b", now=10.0 * number), 10.0 * number + 2.0)
    other = shop.run("b", units=6, now=300.0)
    request, _ = shop.submit("a", units=3, now=300.0)
    assert [d.request for d in shop.balancer.cancel(other, 300.5)] == [other]
    assert shop.reserved() == 8
    decisions = pass_time(shop.balancer, 300.5, 310.0)
    assert [d.request for d in decisions] == [request]
    assert shop.reserved() == 5


@pytest.mark.parametrize(
    ("outcome", "over"),
    [
        (Outcome.OK, True),
        (Outcome.ERROR, True),
        (Outcome.UNREACHABLE, True),
        (Outcome.CONNECTION_LOST, True),
        (Outcome.TIMEOUT, False),
        (Outcome.DEADLINE_EXCEEDED, False),
        (Outcome.CLIENT_DEADLINE_EXCEEDED, False),
        (Outcome.CANCELLED, False),
    ],
)
def test_what_its_server_was_not_heard_to_end_goes_on(outcome, over):
    shop = Shop(devices=1, retry=RetryOptions(max_attempts=1))
    request = shop.run(units=3, now=5.0)
    shop.finish(request, 5.1, outcome)
    assert (shop.reserved() == 2) is over
    pass_time(shop.balancer, 5.1, 60.0)
    assert shop.reserved() == 2


def test_what_others_keep_unused_does_not_stop_all_for_ever():
    """Another server holds more than it uses, so a large request never fits within the budget: alone it may go into
    half of the headroom, and if that is not enough it waits without stopping the others."""
    shop = Shop(devices=1)
    other = shop.balancer.pool("b").find("b0").residency
    shop.ledger.set_measured(other, int(1.4 * GIB))
    assert sent(shop.submit("a", units=6.9)[1]) == "a0"
    shop = Shop(devices=1)
    other = shop.balancer.pool("b").find("b0").residency
    shop.ledger.set_measured(other, 3 * GIB)
    assert waits(shop.submit("a", units=6.9, now=0.0)[1])
    served, now = [], 1.0
    while now < 20.0:
        request, decision = shop.submit("b", units=0.5, now=now)
        if not waits(decision):
            served.append(now)
            shop.finish(request, now + 0.1)
        now += 1.0
        pass_time(shop.balancer, now - 0.5, now)
    assert len([when for when in served if when > 8.0]) > 5


def test_what_a_server_holds_besides_its_models_counts():
    """A process, its libraries, a model nobody told of: what it holds with nothing running is the least it counts."""
    shop = Shop(devices=1)
    place = shop.balancer.pool("b").find("b0").residency
    shop.ledger.set_measured_idle(place, 3 * GIB)
    assert shop.reserved() == 4
    assert sent(shop.submit("b", units=4)[1]) == "b0"
    assert waits(shop.submit("b", units=2)[1])
    assert refused(shop.submit("a", units=6)[1]) == "too_large"
    assert waits(shop.submit("a", units=5)[1])


def test_what_is_only_guessed_runs_alone_and_is_not_refused():
    shop = Shop(devices=1, per_unit=0.0)
    admission = shop.balancer.pool("a").memory
    for _ in range(20):
        admission.request_size.observe((1.0,), "", GIB)
    request, decision = shop.submit(units=1000.0)
    assert sent(decision) == "a0"
    assert shop.reserved() == 9
    assert request.memory.bytes == -1


def test_a_quarantine_holds_for_one_that_runs_alone_too():
    shop = Shop(per_unit=0.0)
    admission = shop.balancer.pool("a").memory
    request = shop.run(units=5.0)
    device = request.attempt.replica.residency.device.name
    _, at_least = shop.balancer.report_out_of_memory(request, request.attempt.replica, 1.0)
    admission.quarantine(device, at_least, until=60.0)
    shop.balancer.finish(request, Outcome.CLIENT_ERROR, 1.0)
    assert runs_on(shop.run(units=5.0, now=2.0))[1] != device[-1]
    assert waits(shop.submit(units=5.0, now=2.0)[1])


def test_measured_to_need_nothing_is_known():
    shop = Shop(devices=1, per_unit=0.0)
    sizes = shop.balancer.pool("a").memory.request_size
    for _ in range(12):
        sizes.observe((1.0,), "", 0)
    shop.run()
    assert sent(shop.submit()[1]) == "a0"


def test_a_request_that_needs_nothing_always_goes():
    shop = Shop(devices=1, per_unit=0.0)
    shop.balancer.pool("a").memory.unmeasured = True
    shop.ledger.set_measured_idle(shop.balancer.pool("b").find("b0").residency, 50 * GIB)
    assert sent(shop.submit("a")[1]) == "a0"


def test_a_request_alone_may_have_what_its_own_server_keeps():
    shop = Shop(devices=1, per_unit=0.0)
    shop.ledger.set_measured(shop.balancer.pool("a").find("a0").residency, 8 * GIB)
    request = shop.run()
    assert request.attempt.reservation[1] == 7 * GIB


def test_what_runs_on_a_replica_that_left_counts_for_who_never_knew_it():
    shop = Shop(devices=1)
    request = shop.run(units=6)
    shop.ledger.release_model(request.attempt.replica.residency)
    shop.balancer.remove_replica("a0", "a", now=0.0)
    other = MemoryLedger(shop.ledger.cells)
    device = other.set_device("gpu0", 0, 10 * GIB, 0.1)
    place = other.add_residency(device, "b0", 1)
    assert not other.reserve(place, 3 * GIB)
    shop.finish(request)
    assert other.reserve(place, 3 * GIB)


@pytest.mark.interpreted("replaces a method of a compiled object")
def test_of_a_thousand_devices_that_are_full_not_each_is_looked_at_for_every_request():
    shop = Shop(devices=100)
    running = [shop.run(units=7) for _ in range(100)]
    first, decision = shop.submit(units=7, now=1.0)
    assert waits(decision)
    looks = []
    look = shop.ledger.usage
    shop.ledger.usage = lambda device: (looks.append(device), look(device))[1]
    for _ in range(10):
        assert waits(shop.submit(units=7, now=1.0)[1])
    assert len(looks) < 10 * 70
    assert shop.finish(running[0], 1.0) == [first]


def test_a_kind_that_is_never_measured_is_believed_after_a_while():
    shop = Shop(devices=1, per_unit=0.0)
    admission = shop.balancer.pool("a").memory
    for _ in range(20):
        admission.request_size.observe((1.0,), "", GIB // 4)
    for number in range(ANSWERS_BEFORE_UNMEASURED):
        request = shop.run(units=2000.0, now=float(number), kind="stream")
        assert request.memory.bytes == -1
        admission.record_measurement(request, False)
        shop.finish(request, number + 0.5)
    request = Request("a", (1.0,), kind="stream")
    assert admission.prepare(request).bytes > 0


def test_what_can_never_fit_is_refused_at_once_with_the_numbers():
    shop = Shop(devices=1)
    _, decision = shop.submit(units=8)
    assert refused(decision) == "too_large"
    assert decision.too_large == (8 * GIB, 7 * GIB, "gpu0")
    assert sent(shop.submit(units=7)[1]) == "a0"


def test_a_model_that_could_be_unloaded_is_no_reason_to_refuse():
    shop = Shop(devices=1)
    place = shop.balancer.pool("b").find("b0").residency
    place.permanent = False
    assert waits(shop.submit(units=8)[1])
    shop.ledger.release_model(place)
    (went,) = [d.request for d in pass_time(shop.balancer, 0.0, 2.0)][:1]
    assert went.phase is RequestPhase.RUNNING


def test_waiting_is_bounded_by_the_deadline():
    shop = Shop(devices=1)
    shop.run("b", units=6)
    request, decision = shop.submit(units=5, deadline=2.0)
    assert waits(decision)
    (refusal,) = [d for d in pass_time(shop.balancer, 0.0, 3.0) if d.request is request]
    assert refused(refusal) == "insufficient_memory"
    assert refused(shop.balancer.submit(Request("a", (5.0,)), 3.0, wait=False)) == "insufficient_memory"


def test_without_a_claim_nothing_changes():
    shop = Shop(devices=1)
    shop.balancer.add_model("c", "least_connections")
    shop.balancer.add_replica("c0", "c", now=0.0)
    shop.run("b", units=7)
    assert sent(shop.submit("c", units=1e9)[1]) == "c0"


def test_a_request_of_which_nothing_is_known_runs_alone():
    shop = Shop(devices=1, per_unit=0.0)
    first = shop.run()
    assert shop.reserved() == 9
    second, decision = shop.submit("b")
    assert waits(decision)
    assert shop.finish(first) == [second]


def test_where_nobody_measures_requests_count_as_nothing_after_a_while():
    shop = Shop(devices=1, per_unit=0.0)
    admission = shop.balancer.pool("a").memory
    for _ in range(ANSWERS_BEFORE_UNMEASURED):
        admission.record_measurement(Request("a"), False)
    assert admission.unmeasured
    for _ in range(3):
        shop.run()
    assert shop.reserved() == 2


def test_what_was_learned_counts_from_the_next_look_on():
    shop = Shop(devices=1)
    other = shop.run("b", units=6)
    request, _ = shop.submit("a", units=3)
    learned = RequestSizeModel(2.0 * GIB, 0.0)
    shop.balancer.pool("a").memory.load_state(GIB, learned.state(), False)
    shop.finish(other)
    assert request.attempt.reservation[1] == pytest.approx(2 * GIB, rel=0.2)


def test_a_device_may_take_only_so_many_requests_of_all_models():
    shop = Shop(devices=1, concurrency=2)
    first = shop.run("a", units=0.1)
    shop.run("b", units=0.1)
    third, decision = shop.submit("b", units=0.1)
    assert waits(decision)
    assert shop.finish(first) == [third]


def test_the_one_that_waited_longest_goes_first_whatever_its_model():
    shop = Shop(devices=1, concurrency=1)
    first = shop.run("a", units=0.1)
    second, _ = shop.submit("b", units=0.1, now=0.1)
    third, _ = shop.submit("a", units=0.1, now=0.2)
    assert shop.finish(first, 1.0) == [second]
    assert shop.finish(second, 2.0) == [third]


def test_small_ones_do_not_starve_a_large_one():
    """Once it has waited for long, what is freed is saved up for it."""
    shop = Shop(devices=1)
    running = [shop.run("b", units=1) for _ in range(6)]
    large, decision = shop.submit("a", units=6, now=0.0)
    assert waits(decision)
    now = EARMARK_AFTER_SECONDS + 0.1
    for _ in range(30):
        shop.balancer.expire(now)
        if large.phase is RequestPhase.RUNNING:
            break
        if running:
            shop.finish(running.pop(0), now)
        request, decision = shop.submit("b", units=1, now=now)
        if not waits(decision):
            running.append(request)
        now += 0.1
    assert large.phase is RequestPhase.RUNNING


def test_room_is_not_saved_for_one_that_left():
    shop = Shop(devices=1)
    shop.run("b", units=5)
    large, _ = shop.submit("a", units=6, now=0.0)
    shop.balancer.expire(EARMARK_AFTER_SECONDS + 0.1)
    pass_time(shop.balancer, 0.0, 1.5)
    assert shop.ledger.devices["gpu0"].earmarked_for is large
    small, decision = shop.submit("b", units=1, now=1.6)
    assert waits(decision)
    decisions = shop.balancer.cancel(large, 1.7)
    assert [d.request for d in decisions] == [small]


def test_more_urgent_ones_pass():
    shop = Shop(devices=1)
    shop.run("b", units=5)
    shop.submit("a", units=6, now=0.0)
    pass_time(shop.balancer, 0.0, 1.5)
    assert sent(shop.submit("b", units=1, now=1.6, priority=1)[1]) == "b0"


def test_running_out_raises_what_is_believed_at_once():
    shop = Shop(devices=2)
    request = shop.run(units=2)
    replica = request.attempt.replica
    amount, at_least = shop.balancer.report_out_of_memory(request, replica, 1.0)
    assert amount == 2 * GIB
    assert at_least > 2 * GIB
    shop.balancer.finish(request, Outcome.OUT_OF_MEMORY, 1.0, replica=replica)
    again = Request("a", (2.0,))
    shop.balancer.pool("a").memory.prepare(again)
    assert again.memory.bytes >= at_least


def test_a_size_in_quarantine_is_kept_from_its_device():
    shop = Shop()
    admission = shop.balancer.pool("a").memory
    admission.quarantine("gpu0", 3 * GIB, until=10.0)
    assert {runs_on(shop.run(units=3)) for _ in range(2)} == {"a1"}
    assert waits(shop.submit(units=3)[1])
    assert runs_on(shop.run(units=2)) == "a0"
    assert runs_on(shop.run(units=4, now=11.0)) == "a0"


def test_a_hedge_needs_room_too():
    shop = Shop(hedge=HedgeOptions(enabled=True, quantile=0.5, budget=1.0))
    for number in range(200):
        shop.finish(shop.run(units=1, now=float(number)), number + 0.1)
    rest = [shop.run("b", units=7, now=300.0)]
    slow = shop.run(units=1, now=300.0)
    pass_time(shop.balancer, 300.0, 330.0)
    for number in range(2):
        assert shop.reserved(number) <= 9
    for request in (slow, *rest):
        shop.balancer.cancel(request, 331.0)
    pass_time(shop.balancer, 331.0, 400.0)
    assert shop.reserved(0) == shop.reserved(1) == 2


def test_a_replica_that_is_removed_counts_until_what_runs_there_is_over():
    shop = Shop(devices=1)
    request = shop.run(units=3)
    shop.ledger.release_model(request.attempt.replica.residency)
    shop.balancer.remove_replica("a0", "a", now=0.0)
    assert shop.reserved() == 4
    shop.finish(request)
    assert shop.reserved() == 1
    assert list(shop.ledger.devices["gpu0"].servers) == ["b0"]


def test_a_model_that_is_not_there_yet_is_waited_for_if_there_is_time():
    shop = Shop(devices=1, wait_for_ready=True)
    shop.balancer.report("a0", Event.UNLOAD, "a", now=0.0)
    shop.balancer.report("a0", Event.LOAD, "a", now=0.0)
    shop.balancer.pool("a").next_ready_at = 5.0
    _, decision = shop.submit(units=1, deadline=4.0)
    assert refused(decision) == "deadline"
    assert decision.retry_after >= 5.0
    early, decision = shop.submit(units=1, deadline=9.0)
    assert waits(decision)
    assert [d.request for d in shop.balancer.report("a0", Event.LOADED, "a", now=5.0)] == [early]


def test_while_little_is_known_each_has_its_server_to_itself():
    """Only then can it be measured; and the largest seen counts for all until sizes can be told apart."""
    shop = Shop(devices=1, per_unit=0.0)
    admission = shop.balancer.pool("a").memory
    admission.request_size.observe((1.0,), "", GIB // 8)
    first = shop.run(units=0.5)
    assert shop.reserved() < 3, "not the whole device"
    second, decision = shop.submit(units=0.5)
    assert waits(decision)
    assert shop.finish(first, 0.1) == [second]
    for number in range(1, 31):
        admission.request_size.observe((float(number % 7 + 1),), "", (number % 7 + 1) * GIB // 8)
    shop.finish(second, 0.2)
    for _ in range(2):
        assert sent(shop.submit(units=2.0, now=0.3)[1]) == "a0", "all is known now"


def test_nobody_has_a_server_to_itself_for_long():
    shop = Shop(devices=1, per_unit=0.0)
    shop.balancer.pool("a").memory.request_size.observe((1.0,), "", GIB // 8)
    shop.balancer.pool("a").memory.exclusive_count = 255
    shop.run(units=0.5, now=0.0)
    other, decision = shop.submit(units=0.5, now=0.5)
    assert waits(decision)
    assert other in [d.request for d in pass_time(shop.balancer, 0.5, 2.0)]
