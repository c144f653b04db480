"""Which replicas go: the least valuable, and it is said why."""

from hypothesis import given
from hypothesis import strategies as st

from steelyard.core.scaling.scale_down import ScaleDownCandidate, choose_removals


def gone(candidates, count):
    return "".join(id for id, _ in choose_removals(candidates, count))


def test_what_counts_most_comes_first():
    candidates = [
        ScaleDownCandidate("a", outdated=True, age=1e6),
        ScaleDownCandidate("b", ready=False, age=1e6),
        ScaleDownCandidate("c", in_rotation=False, age=1e6),
        ScaleDownCandidate("d", slowness=2.0, age=1e6),
        ScaleDownCandidate("e", cost=3.0, age=1e6),
        ScaleDownCandidate("f", age=60.0),
        ScaleDownCandidate("g", age=1e6, in_flight=1),
        ScaleDownCandidate("h", age=1e6, in_flight=5),
        ScaleDownCandidate("i", age=1e6, in_flight=5),
    ]
    found = choose_removals(reversed(candidates), 9)
    assert "".join(id for id, _ in found) == "abcdefghi"
    assert choose_removals(candidates, 8) == [
        ("a", "it was started with settings that are no longer in force"),
        ("b", "it is not ready yet"),
        ("c", "it gets no requests: ejected or unreachable"),
        ("d", "it is slow: 2.0 times as long as a typical one"),
        ("e", "it costs most: 3 an hour"),
        ("f", "it is the youngest: 60 s old"),
        ("g", "it has the fewest requests in flight: 1"),
        ("h", "it is no better than the others"),
    ]
    assert {reason for _, reason in found} == {"all go"}


def test_a_little_slower_is_not_slow():
    candidates = [
        ScaleDownCandidate("a", slowness=1.2),
        ScaleDownCandidate("b", slowness=1.0, cost=2.0),
        ScaleDownCandidate("c", slowness=1.0),
    ]
    assert gone(candidates, 1) == "b"
    assert gone([ScaleDownCandidate("a", slowness=1.3), *candidates[1:]], 1) == "a"


def test_the_slower_of_two():
    assert gone([ScaleDownCandidate("a"), ScaleDownCandidate("b", slowness=3.0)], 1) == "b"


def test_a_broken_replica_does_not_say_what_is_typical():
    candidates = [
        ScaleDownCandidate("a", slowness=9.0, in_rotation=False),
        ScaleDownCandidate("b", slowness=9.0, in_rotation=False),
        ScaleDownCandidate("c", slowness=3.0),
        ScaleDownCandidate("d"),
        ScaleDownCandidate("e"),
    ]
    assert gone(candidates, 3) == "abc"


def test_the_coldest_cache_if_all_say_it_else_the_youngest():
    candidates = [ScaleDownCandidate("a", cache=0.9, age=10.0), ScaleDownCandidate("b", cache=0.2, age=9000.0)]
    assert choose_removals(candidates, 1) == [("b", "its cache is the coldest: 20% in use")]
    assert gone([*candidates, ScaleDownCandidate("c", age=5000.0)], 1) == "a"


def test_among_about_as_warm_the_one_with_the_least_to_do():
    assert (
        gone([ScaleDownCandidate("a", cache=0.52, in_flight=7), ScaleDownCandidate("b", cache=0.54, in_flight=2)], 1)
        == "b"
    )
    assert (
        gone([ScaleDownCandidate("a", age=610.0, in_flight=7), ScaleDownCandidate("b", age=630.0, in_flight=2)], 1)
        == "b"
    )


def test_among_equals_the_youngest():
    assert choose_removals([ScaleDownCandidate("a", age=55.0), ScaleDownCandidate("b", age=50.0)], 1) == [
        ("b", "it is the youngest: 50 s old")
    ]
    assert (
        gone([ScaleDownCandidate("a", cache=0.52, age=900.0), ScaleDownCandidate("b", cache=0.54, age=50.0)], 1) == "b"
    )


def test_no_more_than_there_are_and_none_if_none_are_asked_for():
    assert choose_removals([], 3) == []
    assert choose_removals([ScaleDownCandidate("a")], 0) == []
    assert choose_removals([ScaleDownCandidate("a")], -2) == []
    assert choose_removals([ScaleDownCandidate("a")], 5) == [("a", "all go")]


many = st.lists(
    st.builds(
        ScaleDownCandidate,
        st.text("abcdef", min_size=1, max_size=3),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.sampled_from([0.0, 1.0, 1.1, 2.0, 50.0]),
        st.floats(0, 1e6),
        st.one_of(st.none(), st.floats(0, 1)),
        st.sampled_from([0.0, 1.0, 2.0]),
        st.integers(0, 4),
    ),
    unique_by=lambda c: c.id,
    max_size=9,
)


@given(many, st.randoms(use_true_random=False))
def test_in_whatever_order_they_are_told_the_same_go(candidates, rng):
    shuffled = list(candidates)
    rng.shuffle(shuffled)
    for count in range(len(candidates) + 1):
        found = choose_removals(candidates, count)
        assert found == choose_removals(shuffled, count)
        assert len({id for id, _ in found}) == count
        assert gone(candidates, count) == gone(candidates, len(candidates))[: len(gone(candidates, count))]


@given(many)
def test_nobody_in_use_goes_while_one_that_is_not_stays(candidates):
    for count in range(len(candidates)):
        left = {id for id, _ in choose_removals(candidates, count)}
        if any(c.ready and c.in_rotation and not c.outdated for c in candidates if c.id in left):
            assert all(c.ready and c.in_rotation and not c.outdated for c in candidates if c.id not in left)
