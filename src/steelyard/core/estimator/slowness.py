"""How slow one replica is against a typical one, learned from its residuals.

Idea: a scalar Kalman filter on ln(slowness). The noise of the residuals sets its gain: where features explain sizes
well, one slow answer is news; else one large request must not look like a slow replica (the mistake of peak EWMA). A
run of long answers opens the filter; of short ones only where it is believed slower than its weight says.

Formula: gain = v / (v + noise), ln ← ln + gain × surprise, v ← v × (1 − gain) + drift × seconds, surprise clipped at
MAX_SURPRISE_STDEVS. The value is shrunk towards the prior p (the weight): ln(value) = p + d × (1 − SHRINK_VARIANCES × v
/ d²) with d = ln − p, or p where that is negative. So equal replicas stay exactly equal.

Source: Kalman 1960; positive-part shrinkage as in James and Stein 1961. Limits: it follows only where requests go;
exploration.py sends some to replicas believed slow.
"""

from __future__ import annotations

from math import exp, log
from typing import Final

DRIFT_VARIANCE_PER_SECOND: Final = 0.0003  # of ln(slowness)
PRIOR_VARIANCE: Final = 0.5  # of a replica not seen yet
TREND_DECAY: Final = 0.6
TREND_ALARM_STDEVS: Final = 1.4  # about three of the trend at rest
MAX_SURPRISE_STDEVS: Final = 2.5
SHRINK_VARIANCES: Final = 6.0
MAX_LN_SLOWNESS: Final = log(1000.0)
MIN_IMPROVEMENT_LN = log(2.0)
MIN_VARIANCE_AFTER_EJECTION = 0.05
MIN_SAMPLES_FOR_BASELINE = 20
BASELINE_RISE_PER_SECOND, BASELINE_FALL_PER_SECOND = 1 / 600, 1 / 60  # slowness is not usual soon
MAX_EXPLORATION_BACKOFF = 8


class SlownessFilter:
    """The filter of one replica; `replica.slowness` is its result."""

    def __init__(self, prior: float, now: float) -> None:
        self.prior = self.ln = log(prior)
        self.variance = PRIOR_VARIANCE
        self.trend = 0.0
        self.updated_at = now
        self.seen = 0
        self.baseline: float | None = None  # its usual ln(slowness), once known
        # For batching_curve.py: means of ln(requests there) and of ln(seconds / seconds alone on a typical replica).
        self.baseline_crowd = self.baseline_stretch = 0.0
        # For exploration.py:
        self.dispatched_seen = -1
        self.explore_after = 0
        self.exploration_backoff = 1
        self.exploring = False

    def set_prior(self, ln: float) -> None:
        self.prior = ln
        if not self.seen:
            self.ln = ln

    def recenter(self, shift: float) -> None:
        """The typical replica is `shift` slower than was thought. About once a second."""
        self.ln -= shift
        if self.baseline is not None:
            usual = self.baseline - shift
            off = self.ln - usual
            self.baseline = usual + off * (BASELINE_RISE_PER_SECOND if off > 0.0 else BASELINE_FALL_PER_SECOND)
        elif self.seen >= MIN_SAMPLES_FOR_BASELINE:
            # Not what a few short answers made it look like, or it would be ejected for being as usual.
            self.baseline = max(self.ln, self.prior)

    @property
    def excess(self) -> float:
        """ln of how much slower it is than usual."""
        return 0.0 if self.baseline is None else self.ln - self.baseline

    @property
    def margin(self) -> float:
        """By how much that may be luck: two standard deviations of a difference."""
        return 2.0 * float((2.0 * self.variance) ** 0.5)

    def restore(self, slowed: bool) -> None:
        """After an ejection its usual speed is believed (`slowed`: it had lost it), and its next answers count more."""
        if slowed and self.baseline is not None and self.ln > self.baseline:
            self.ln = self.baseline
        if self.variance < MIN_VARIANCE_AFTER_EJECTION:
            self.variance = MIN_VARIANCE_AFTER_EJECTION
        self.trend = 0.0

    def observe(self, ln_ratio: float, noise: float, now: float, leeway: float = 0.0) -> None:
        """`ln_ratio`: ln(seconds here / on a typical replica), `noise` the variance of such residuals. A surprise up to
        `leeway` has another cause."""
        if self.exploring:
            self._take_trial(ln_ratio, noise)
        sd = noise**0.5
        surprise = ln_ratio - self.ln
        if leeway:
            surprise = surprise - leeway if surprise > leeway else surprise + leeway if surprise < -leeway else 0.0
        if surprise > MAX_SURPRISE_STDEVS * sd:
            surprise = MAX_SURPRISE_STDEVS * sd
        elif surprise < -MAX_SURPRISE_STDEVS * sd:
            surprise = -MAX_SURPRISE_STDEVS * sd
        doubt = self.variance + DRIFT_VARIANCE_PER_SECOND * max(0.0, now - self.updated_at)
        if doubt > PRIOR_VARIANCE:
            doubt = PRIOR_VARIANCE
        self.trend = trend = TREND_DECAY * self.trend + (1.0 - TREND_DECAY) * surprise / sd
        # A run of short answers is luck, unless it was believed slow: one believed fast would get everything.
        if (trend > TREND_ALARM_STDEVS or (trend < -TREND_ALARM_STDEVS and self.ln > self.prior)) and doubt < noise:
            doubt = noise
        gain = doubt / (doubt + noise)
        self.variance = doubt * (1.0 - gain)
        self.updated_at = now
        self.seen += 1
        ln = self.ln + gain * surprise
        self.ln = MAX_LN_SLOWNESS if ln > MAX_LN_SLOWNESS else -MAX_LN_SLOWNESS if ln < -MAX_LN_SLOWNESS else ln

    def _take_trial(self, ln_ratio: float, noise: float) -> None:
        """The first answer after it was left alone: the old estimate holds, or its weight does, so the doubt is as wide
        as the two are apart. Only for the better: one large request must not make it look worse."""
        self.exploring = False
        off = self.ln - self.prior
        wide = off * off if off * off > PRIOR_VARIANCE else PRIOR_VARIANCE
        better = min(self.ln - ln_ratio, max(off, MAX_SURPRISE_STDEVS * noise**0.5)) * wide / (wide + noise)
        if better > 0.0:
            self.ln -= better
            self.trend = 0.0
        self.exploration_backoff = (
            1 if better > MIN_IMPROVEMENT_LN else min(2 * self.exploration_backoff, MAX_EXPLORATION_BACKOFF)
        )

    def value(self) -> float:
        off = self.ln - self.prior
        square = off * off
        luck = SHRINK_VARIANCES * self.variance
        if square <= luck:
            return exp(self.prior)
        return exp(self.prior + off * (1.0 - luck / square))
