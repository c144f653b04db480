"""What requests need: learned from what workers measured, raised when one ran out of memory, told to all."""

from __future__ import annotations

import logging

from steelyard.link.messages import DeviceCapacities, MemorySample, MemorySizes, Quarantine

from .making import READY, made, model, ran_out, report

DEVICE = "{d: {memory: 1000, headroom: 10%}}"
M = f"{{m: {model()}}}"
DECLARED = f"{{m: {model(more='memory: {weights: 5, per_request: 10, per_unit: 2}')}}}"
SHARED = f"{{m: {model()}, n: {model(port=2)}}}"
A = ("m", "a")


def sample(bytes: int, size: float = 10.0) -> MemorySample:
    return MemorySample("m", "a", "infer", (size, 0.0, 0.0), bytes)


def test_learned_from_what_was_measured() -> None:
    with made(DEVICE, M) as it:
        assert it.sizes("m").requests_source == "unknown"
        it.heard(MemorySizes)
        for second in range(1, 60):
            it.accounts.worker_reported(
                report(samples=tuple(sample(100 + second % 3) for _ in range(5))), float(second)
            )
            it.accounts.tick(second + 0.5)
        sizes = it.heard(MemorySizes)
        assert sizes[-1].requests.known
        view = it.sizes("m")
        assert (view.requests_source, view.samples) == ("learned", 295)
        assert 100 <= view.smallest <= view.largest < 200
        assert len(sizes) <= 59, "not for every sample"


def test_of_a_model_nobody_knows() -> None:
    with made(DEVICE, M) as it:
        stranger = MemorySample("x", "a", "infer", (1.0,), 5)
        it.accounts.worker_reported(report(samples=(stranger,), unmeasured=("x",)), 1.0)
        it.accounts.out_of_memory(ran_out("x"), 1.0)
        it.accounts.tick(2.0)


def test_nonsense_is_left_out() -> None:
    with made(DEVICE, M) as it:
        nonsense = (sample(-5), sample(10, float("nan")), sample(10, float("inf")))
        it.accounts.worker_reported(report(samples=nonsense), 1.0)
        it.accounts.tick(2.0)
        assert not it.sizes("m").samples


def test_no_more_than_so_many_are_kept() -> None:
    with made(DEVICE, M) as it:
        for _ in range(100):
            it.accounts.worker_reported(report(samples=(sample(100),) * 256), 1.0)
        for tick in range(2, 60):
            it.accounts.tick(float(tick))
        assert it.sizes("m").samples == 1024


def test_one_with_many_leaves_time_for_the_others() -> None:
    with made(DEVICE, SHARED) as it:
        other = MemorySample("n", "a", "infer", (1.0, 0.0, 0.0), 5)
        it.accounts.worker_reported(report(samples=(*(sample(100),) * 255, other)), 1.0)
        it.accounts.tick(2.0)
        assert (it.sizes("m").samples, it.sizes("n").samples) == (24, 1)


def test_declared_is_told_to_a_new_worker() -> None:
    with made(DEVICE, DECLARED) as it:
        capacity, sizes = it.accounts.initial_state()
        assert capacity == DeviceCapacities({})
        assert isinstance(sizes, MemorySizes)
        assert (sizes.model, sizes.footprint, sizes.requests.declared) == ("m", 5, (10.0, 2.0))
        assert it.sizes("m").requests_source == "declared"


def test_one_ran_out_of_memory() -> None:
    with made(DEVICE, DECLARED) as it:
        it.accounts.state_changed(A, READY, 0.0)
        it.heard(MemorySizes)
        it.accounts.out_of_memory(ran_out(bytes=30, available=80), 10.0)
        assert [type(message) for message in it.sent] == [MemorySizes, Quarantine], "at once, what they need first"
        assert it.heard(Quarantine) == [Quarantine("m", "d", 80, 60.0)]
        assert it.sizes("m").model == "m"
        requests = it.accounts.sizings["m"].requests
        assert requests.upper_bound((10.0, 0.0, 0.0), "infer") >= 80
        view = it.device(11.0)
        assert (view.out_of_memory_errors, [(q.model, q.bytes, q.seconds) for q in view.quarantines]) == (
            1,
            [("m", 80, 59.0)],
        )
        assert it.notes[-1].level == logging.WARNING
        assert it.notes[-1].what == (
            "a request ran out of memory on d (its answer said so): 30 B were reserved for it; "
            "requests like it now reserve 80 B and avoid d for 60 s"
        )
        assert "1 in all, the last 1.00 s ago" in it.codes(11.0)["out_of_memory"]
        assert "out_of_memory" not in it.codes(1000.0)
        it.fleet.clock = lambda: 10.0
        assert it.accounts.initial_state()[-1] == Quarantine("m", "d", 80, 60.0)


def test_many_at_once_are_told_once() -> None:
    with made(DEVICE, DECLARED) as it:
        it.heard(MemorySizes)
        for number in range(500):
            it.accounts.out_of_memory(ran_out(bytes=30, available=80 + number), 10.0 + number / 5000)
        assert len(it.heard(Quarantine)) == 1
        assert len(it.heard(MemorySizes)) == 1
        assert len(it.notes) == 1
        assert it.device(10.1).out_of_memory_errors == 500
        it.accounts.tick(10.5)
        assert [q.bytes for q in it.heard(Quarantine)] == [80]
        assert len(it.heard(MemorySizes)) == 1


def test_nobody_says_what_requests_need() -> None:
    with made(DEVICE, SHARED) as it:
        it.heard(MemorySizes)
        it.accounts.worker_reported(report(unmeasured=("m",)), 1.0)
        it.accounts.tick(1.5)
        assert [(sizes.model, sizes.unmeasured) for sizes in it.heard(MemorySizes)] == [("m", True)]
        assert it.sizes("m").requests_source == "unmeasured"
        what = it.codes(2.0)["memory_unmeasured"]
        assert "count as nothing" in what
        assert "use steelyard.replica in its server, or set models.m.memory.per_request" in what
        it.accounts.worker_reported(report(samples=(sample(100),)), 3.0)
        it.accounts.tick(3.5)
        assert [sizes.unmeasured for sizes in it.heard(MemorySizes)] == [False]
        assert "memory_unmeasured" not in it.codes(4.0)


def test_alone_on_its_device_it_does_no_harm() -> None:
    with made(DEVICE, M) as it:
        it.accounts.worker_reported(report(unmeasured=("m",)), 1.0)
        assert "memory_unmeasured" not in it.codes(2.0)


def test_what_is_declared_is_not_unmeasured() -> None:
    with made(DEVICE, DECLARED) as it:
        it.heard(MemorySizes)
        it.accounts.worker_reported(report(unmeasured=("m",)), 1.0)
        it.accounts.tick(2.0)
        assert it.heard(MemorySizes) == []


def test_who_counts_as_nothing_does_not_after_one_ran_out() -> None:
    with made(DEVICE, SHARED) as it:
        it.accounts.worker_reported(report(unmeasured=("m",)), 1.0)
        it.accounts.tick(2.0)
        it.heard(MemorySizes)
        it.accounts.out_of_memory(ran_out(bytes=0, available=0), 3.0)
        assert it.heard(Quarantine) == [], "of which size, nobody knows"
        it.accounts.worker_reported(report(unmeasured=("m",)), 3.1)  # a worker that has not heard of it yet
        it.accounts.tick(3.5)
        assert [sizes.unmeasured for sizes in it.heard(MemorySizes)] == [False]


def test_declared_anew() -> None:
    with made(DEVICE, DECLARED) as it:
        it.heard(MemorySizes)
        it.follow(DEVICE, DECLARED.replace("request: 10", "request: 20"), 1.0)
        assert [sizes.requests.declared for sizes in it.heard(MemorySizes)] == [(20.0, 2.0)]
        it.follow(DEVICE, SHARED.replace("m:", "x:"), 2.0)
        assert {sizes.model for sizes in it.heard(MemorySizes)} == {"x", "n"}
