"""Every policy of the table passes the suite that users run on theirs, and a broken policy does not."""

import random
import secrets
from unittest import SkipTest

import pytest

from steelyard.core.errors import OptionError
from steelyard.core.policies import POLICIES
from steelyard.core.policies.base import Policy, weighted_choice
from steelyard.testing import PolicyConformance, check_policy

# Weights tell these nothing about shares: one ignores them, the others go by the seconds they see.
NO_WEIGHTS = {"round_robin", "prequal", "least_work", "prefix_work"}


class TestEveryPolicyOfTheTable(PolicyConformance):
    @pytest.fixture(autouse=True, params=POLICIES)
    def named(self, request):
        self.policy = request.param
        self.respects_weights = request.param not in NO_WEIGHTS


# ---------------------------------------------------------------------- a user's own


class Rarest(Policy):
    """The candidate it has sent least to for its weight; ties at random."""

    def __init__(self, rng, *, head_start=0.0):
        super().__init__(rng)
        self.head_start = head_start

    def joined(self, replica, now):
        # Level with the others, or a newcomer would get everything until it has caught up.
        replica.notes = self.head_start

    def choose(self, request, candidates, now):
        least = min(r.notes for r in candidates)
        return weighted_choice([r for r in candidates if r.notes <= least + 1e-9], self.rng.random())

    def sent(self, attempt, now):
        attempt.replica.notes += 1 / attempt.replica.effective_weight


class TestAUsersOwnPolicy(PolicyConformance):
    policy = f"{__name__}:Rarest"
    options = {"head_start": 2.0}  # noqa: RUF012 - written as a user would


def test_a_users_own_policy_passes_without_pytest():
    check_policy(f"{__name__}:Rarest", head_start=1.0)


def test_a_claim_that_is_not_made_is_skipped_and_said_so():
    class Suite(PolicyConformance):
        policy = "round_robin"
        respects_weights = False

    with pytest.raises(SkipTest, match="round_robin does not claim respects_weights"):
        Suite().test_shares_follow_weights()


def test_a_wrong_name_or_option_is_refused_by_name():
    with pytest.raises(AssertionError, match="no policy 'nonsense'"):
        check_policy("nonsense")
    with pytest.raises(AssertionError, match="unknown option 'speed'"):
        check_policy("random", speed=3)
    suite = PolicyConformance()
    suite.policy = "nonsense"
    with pytest.raises(OptionError, match="no policy 'nonsense'"):
        suite.test_shares_follow_weights()


# ---------------------------------------------------------------------- broken ones


class KeepsTheEarlier(Policy):
    """Caddy's mistake: a lower load is noted, but the earlier candidate kept. Flawless while all are idle."""

    def choose(self, request, candidates, now):
        best, least, ties = candidates[0], candidates[0].load, 1
        for replica in candidates[1:]:
            if replica.load < least:
                least, ties = replica.load, 1
            elif replica.load == least:
                ties += 1
                if self.rng.random() * ties < 1:
                    best = replica
        return best


class Outsider(Policy):
    """One choice behind: what it returns was a candidate, and may be none any more."""

    behind = None

    def choose(self, request, candidates, now):
        choice = self.behind or candidates[0]
        self.behind = weighted_choice(candidates, self.rng.random())
        return choice


class AlwaysTheFirst(Policy):
    def choose(self, request, candidates, now):
        return candidates[0]


class FirstOfTheLeastLoaded(Policy):
    def choose(self, request, candidates, now):
        return min(candidates, key=lambda r: r.load / r.effective_weight)


class Sorter(Policy):
    def choose(self, request, candidates, now):
        candidates.sort(key=lambda r: -r.order)
        return candidates[0]


class Meddler(Policy):
    """Counts what it sent where it must not: in the balancer's own numbers."""

    def choose(self, request, candidates, now):
        choice = weighted_choice(candidates, self.rng.random())
        choice.dispatched += 1
        return choice


class QuietMeddler(Policy):
    """Meddles outside `choose`, and deeper."""

    def choose(self, request, candidates, now):
        return weighted_choice(candidates, self.rng.random())

    def finished(self, attempt, seconds, outcome, now):
        attempt.replica.latency.add(seconds, now)


class Rewriter(Policy):
    def choose(self, request, candidates, now):
        request.base = 1.5
        return weighted_choice(candidates, self.rng.random())


class OwnRandomness(Policy):
    def choose(self, request, candidates, now):
        return candidates[secrets.randbelow(len(candidates))]


class GlobalRandomness(Policy):
    def choose(self, request, candidates, now):
        random.seed(request.key)
        return random.choice(candidates)


class IgnoresWeights(Policy):
    def choose(self, request, candidates, now):
        return candidates[int(self.rng.random() * len(candidates))]


class BelievesFastErrors(Policy):
    """Measures latency itself, so that an instant error looks like the fastest answer of all."""

    def joined(self, replica, now):
        replica.notes = 0.0

    def finished(self, attempt, seconds, outcome, now):
        if attempt.replica.notes is not None:
            attempt.replica.notes = round(now - attempt.started, 6)

    def choose(self, request, candidates, now):
        least = min(r.notes * (r.load + 1) / r.effective_weight for r in candidates)
        tied = [r for r in candidates if r.notes * (r.load + 1) / r.effective_weight == least]
        return weighted_choice(tied, self.rng.random())


class NeedsAKey(Policy):
    def choose(self, request, candidates, now):
        assert len(request.key) >= 0
        return weighted_choice(candidates, self.rng.random())


class CannotCopeWithLeaving(Policy):
    """Counts itself what is in flight, and forgets those that leave."""

    def __init__(self, rng):
        super().__init__(rng)
        self.counts = {}

    def joined(self, replica, now):
        self.counts[replica] = 0

    def left(self, replica, now):
        del self.counts[replica]

    def choose(self, request, candidates, now):
        return weighted_choice(candidates, self.rng.random())

    def sent(self, attempt, now):
        self.counts[attempt.replica] += 1

    def finished(self, attempt, seconds, outcome, now):
        self.counts[attempt.replica] -= 1


class Slacker(Policy):
    """Never content with the place it chose itself."""

    def choose(self, request, candidates, now):
        return weighted_choice(candidates, self.rng.random())

    def patience(self, request, replica, ahead, now):
        return 1.0


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (KeepsTheEarlier, "equal replicas, each with some four requests should get even shares"),
        (Outsider, "is none of the . candidates"),
        (AlwaysTheFirst, "should get even shares"),
        (FirstOfTheLeastLoaded, "should get even shares"),
        (Sorter, "choose changed the list of candidates"),
        (Meddler, "choose changed 'dispatched' of a replica"),
        (QuietMeddler, "finished changed 'latency' of a replica"),
        (Rewriter, "choose changed 'base' of the request"),
        (OwnRandomness, "two runs with equal seeds and times differ"),
        (GlobalRandomness, "drew from the global random"),
        (IgnoresWeights, "weight 1 of 6 should get 0.167 of the requests"),
        (BelievesFastErrors, "a replica that fails each request at once got"),
        (NeedsAKey, "in the check that odd requests do not crash it: TypeError"),
        (CannotCopeWithLeaving, "in the check that .*: KeyError"),
        (Slacker, "the only replica was open"),
    ],
)
def test_a_broken_policy_fails_with_a_sentence_that_says_how(broken, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_policy(f"{__name__}:{broken.__name__}")


def test_caddys_mistake_does_not_show_on_idle_replicas():
    """The reason why the suite also looks at loads that are not zero."""
    suite = PolicyConformance()
    suite.policy = f"{__name__}:KeepsTheEarlier"
    suite.test_equal_replicas_get_equal_shares_when_idle()
    with pytest.raises(AssertionError, match="should get even shares"):
        suite.test_ties_are_fair_wherever_the_busier_replicas_stand()
