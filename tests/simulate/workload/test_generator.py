"""Random requests have the distribution they were asked to have."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from steelyard.documents import Seconds
from steelyard.simulate.engine.job import Job
from steelyard.simulate.scenario.schema import Arrivals, ModelMix, ReplicaGroup, Scenario, Sizes, Workload
from steelyard.simulate.workload.generator import JOBS_PER_BLOCK, TYPICAL_FEATURE, log_size_variance, random_jobs

SAMPLE_REQUESTS = 60_000


def scenario(requests: int = SAMPLE_REQUESTS, load_time: float = 0.0, **workload: object) -> Scenario:
    return Scenario(
        requests=requests,
        fleet=(ReplicaGroup(), ReplicaGroup(load_time=Seconds(load_time))),
        workload=Workload(**workload),  # type: ignore[arg-type]
    )


def jobs(requests: int = SAMPLE_REQUESTS, rate: float = 10.0, seed: int = 1, **workload: object) -> list[Job]:
    return list(random_jobs(scenario(requests, **workload), rate, seed))  # type: ignore[arg-type]


def works(**workload: object) -> NDArray[np.float64]:
    return np.array([job.work for job in jobs(**workload)])  # type: ignore[arg-type]


def gaps(**workload: object) -> NDArray[np.float64]:
    return np.diff([0.0, *(job.intended_at for job in jobs(**workload))])  # type: ignore[arg-type]


def area(y: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    return float(np.sum((y[1:] + y[:-1]) / 2 * np.diff(x)))


def seen(job: Job) -> tuple[object, ...]:
    return job.intended_at, job.work, job.features, job.deadline, job.tenant, job.kind, job.key, job.cold_seconds


# Sizes


def test_constant_work_is_constant() -> None:
    assert set(works(sizes=Sizes(kind="constant", mean=Seconds(0.2)))) == {0.2}


def test_exponential_work_has_its_mean_and_a_cv_of_one() -> None:
    work = works(sizes=Sizes(kind="exponential", mean=Seconds(0.2)))
    assert work.mean() == pytest.approx(0.2, rel=0.02)
    assert work.std() / work.mean() == pytest.approx(1.0, rel=0.03)
    assert np.median(work) == pytest.approx(0.2 * np.log(2), rel=0.03)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0])
def test_lognormal_work_has_its_mean_and_cv(cv: float) -> None:
    work = works(sizes=Sizes(kind="lognormal", mean=Seconds(0.2), cv=cv))
    assert work.mean() == pytest.approx(0.2, rel=0.03)
    assert work.std() / work.mean() == pytest.approx(cv, rel=0.1)
    assert np.log(work).std() == pytest.approx(np.log(1 + cv**2) ** 0.5, rel=0.02)


@pytest.mark.parametrize(("alpha", "spread"), [(1.5, 1000.0), (2.5, 100.0), (0.8, 50.0)])
def test_pareto_work_has_its_mean_and_stays_within_its_bounds(alpha: float, spread: float) -> None:
    work = works(sizes=Sizes(kind="pareto", mean=Seconds(0.2), alpha=alpha, spread=spread))
    x = np.geomspace(1.0, spread, 200_001)
    density = x ** (-alpha - 1.0)
    least = 0.2 * area(density, x) / area(density * x, x)  # by quadrature, not by the formula
    assert work.mean() == pytest.approx(0.2, rel=0.04)
    assert work.min() >= least * (1 - 1e-6)
    assert work.max() <= least * spread * (1 + 1e-6)
    assert work.min() == pytest.approx(least, rel=0.01)
    # Of the unbounded Pareto's tail beyond twice the least, what the bound leaves.
    beyond = (2**-alpha - spread**-alpha) / (1 - spread**-alpha)
    assert np.mean(work > 2 * least) == pytest.approx(beyond, rel=0.04)


@pytest.mark.parametrize(
    "sizes", [Sizes(kind="exponential"), Sizes(kind="lognormal", cv=2.0), Sizes(kind="pareto", alpha=1.5)]
)
def test_the_variance_of_log_sizes_is_known(sizes: Sizes) -> None:
    assert np.log(works(sizes=sizes)).var() == pytest.approx(log_size_variance(sizes), rel=0.03)


# Features


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("kind", ["exponential", "lognormal", "pareto"])
def test_the_feature_explains_its_share_of_the_log_variance(kind: str, share: float) -> None:
    made = jobs(sizes=Sizes(kind=kind), features=share)  # type: ignore[arg-type]
    assert {len(job.features) for job in made} == {1}
    feature = np.log([job.features[0] for job in made])
    true = np.log([job.work for job in made])
    assert np.corrcoef(feature, true)[0, 1] ** 2 == pytest.approx(share, abs=0.015)


def test_a_feature_that_tells_all_is_in_proportion_to_the_work() -> None:
    for job in jobs(requests=100, sizes=Sizes(mean=Seconds(0.5)), features=1.0):
        assert job.features[0] == pytest.approx(TYPICAL_FEATURE * job.work / 0.5)


def test_the_feature_of_constant_work_tells_nothing_and_is_positive() -> None:
    made = jobs(requests=1_000, sizes=Sizes(kind="constant"), features=0.9)
    assert len({job.features for job in made}) == 1_000
    assert all(job.features[0] > 0 for job in made)


# Arrivals


def test_requests_come_in_order_also_from_block_to_block() -> None:
    made = jobs(requests=2 * JOBS_PER_BLOCK + 5)
    assert len(made) == 2 * JOBS_PER_BLOCK + 5
    assert made[0].intended_at > 0
    assert all(a.intended_at < b.intended_at for a, b in pairwise(made))


def test_poisson_gaps_have_their_mean_and_a_cv_of_one() -> None:
    between = gaps(rate=10.0)
    assert between.mean() == pytest.approx(0.1, rel=0.02)
    assert between.std() / between.mean() == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("cv", [0.5, 3.0, 8.0])
def test_gamma_gaps_have_their_mean_and_cv(cv: float) -> None:
    between = gaps(rate=10.0, arrivals=Arrivals(kind="gamma", cv=cv))
    assert between.mean() == pytest.approx(0.1, rel=4 * cv / SAMPLE_REQUESTS**0.5)
    assert between.std() / between.mean() == pytest.approx(cv, rel=0.06)


def test_gamma_gaps_of_cv_one_are_poisson() -> None:
    poisson = gaps(requests=1_000)
    gamma = gaps(requests=1_000, arrivals=Arrivals(kind="gamma", cv=1.0))
    assert (poisson == gamma).all()


def test_regular_gaps_are_all_alike() -> None:
    assert gaps(requests=JOBS_PER_BLOCK + 10, rate=10.0, arrivals=Arrivals(kind="regular")) == pytest.approx(
        0.1, rel=1e-6
    )


# Who and what


def test_tenants_come_in_their_shares() -> None:
    count = Counter(job.tenant for job in jobs(tenants={"a": 6.0, "b": 3.0, "c": 1.0}))
    assert set(count) == {"a", "b", "c"}
    for tenant, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)):
        assert count[tenant] / SAMPLE_REQUESTS == pytest.approx(share, rel=0.04)


@pytest.mark.parametrize("zipf", [0.0, 1.0, 1.5])
def test_models_are_as_popular_as_zipf_says(zipf: float) -> None:
    count = Counter(job.kind for job in jobs(models=ModelMix(count=8, zipf=zipf)))
    weights = [rank**-zipf for rank in range(1, 9)]
    assert set(count) == {f"model-{n}" for n in range(8)}
    for n, weight in enumerate(weights):
        assert count[f"model-{n}"] / SAMPLE_REQUESTS == pytest.approx(weight / sum(weights), rel=0.08)


def test_a_request_of_several_models_says_what_it_needs_warm_and_what_loading_costs() -> None:
    made = random_jobs(scenario(requests=50, load_time=2.0, models=ModelMix(count=3)), 1.0, 1)
    assert all(job.key == job.kind and job.cold_seconds == 2.0 for job in made)


def test_a_request_of_the_only_model_has_no_kind_key_or_loading() -> None:
    for job in random_jobs(scenario(requests=50, load_time=2.0, tenants={"a": 1.0}), 1.0, 1):
        assert (job.kind, job.key, job.cold_seconds, job.tenant) == ("", None, 0.0, "a")


def test_the_deadline_counts_from_arrival() -> None:
    assert all(job.deadline == job.intended_at + 1.5 for job in jobs(requests=100, deadline=Seconds(1.5)))
    assert all(job.deadline == float("inf") for job in jobs(requests=100))


# Seeds


@pytest.mark.parametrize("more", [{}, {"tenants": {"a": 1.0, "b": 1.0}, "models": ModelMix(count=3)}])
def test_the_same_seed_makes_the_same_jobs(more: dict[str, object]) -> None:
    first, again = ([seen(job) for job in jobs(JOBS_PER_BLOCK + 100, 10.0, 7, **more)] for _ in range(2))
    assert first == again


def test_another_seed_makes_other_jobs() -> None:
    one, two = (jobs(1_000, 10.0, seed) for seed in (1, 2))
    assert not {job.work for job in one} & {job.work for job in two}
    assert not {job.intended_at for job in one} & {job.intended_at for job in two}


def test_another_rate_makes_the_same_work_come_at_another_pace() -> None:
    slow, fast = (jobs(1_000, rate, 1) for rate in (10.0, 40.0))
    assert [job.work for job in slow] == [job.work for job in fast]
    assert [job.intended_at for job in slow] == pytest.approx([4 * job.intended_at for job in fast])


def test_jobs_are_made_as_they_are_needed() -> None:
    # All of them would not fit into any memory.
    endless = random_jobs(scenario(requests=10**12), 10.0, 1)
    assert sum(1 for _ in islice(endless, 2 * JOBS_PER_BLOCK + 1)) == 2 * JOBS_PER_BLOCK + 1
