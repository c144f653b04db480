"""How slow one replica is against a typical one, learned from its residuals.

A scalar Kalman filter on ln(slowness). Its gain follows from how noisy the residuals are: where features explain the
sizes well, one slow answer is news; where they explain nothing, one large request must not look like a slow replica
(the mistake peak-EWMA makes). A run of residuals to one side opens the filter, so a real change is followed in a few
requests. What it publishes is shrunk towards the prior by its own doubt: a difference that may be luck is not shown, so
equal replicas stay exactly equal.
"""

from __future__ import annotations

from math import exp, log

DRIFT = 0.0003  # variance of ln(slowness) gained per second
DOUBT = 0.5  # variance of ln(slowness) for a replica not seen yet
MEMORY = 0.6  # of the trend
ALARM = 1.4  # about three standard deviations of the trend at rest
CLIP = 2.5  # a residual counts for at most this many standard deviations
SHRINK = 6.0  # differences under √SHRINK standard deviations are not shown
LIMIT = log(1000.0)
FORGIVEN = log(2.0)
RETURNED = 0.05  # doubt, at the least, of one that comes back after an ejection
KNOWN = 20  # answers before anything is its usual speed
USUAL_UP, USUAL_DOWN = 1 / 600, 1 / 60  # how fast the usual follows, per second: a slow replica is not usual soon
MOST_PATIENT = 8  # times as long between trials that show nothing new


class Slowness:
    """State of the filter for one replica; `replica.slowness` is its readable result."""

    __slots__ = (
        "doubt",
        "due",
        "ln",
        "on_trial",
        "picks",
        "prior",
        "seen",
        "stamp",
        "trend",
        "usual",
        "usual_crowd",
        "usual_stretch",
        "wait",
    )

    def __init__(self, prior: float, now: float) -> None:
        self.prior = self.ln = log(prior)
        self.doubt = DOUBT
        self.trend = 0.0
        self.stamp = now
        self.seen = 0
        self.usual: float | None = None  # its usual ln(slowness), once known
        # Of core/curve.py: means of ln(requests there) and of ln(seconds / seconds alone on a typical replica).
        self.usual_crowd = self.usual_stretch = 0.0
        # Of core/trials.py: attempts sent there at the last look, when to try it again, how patient to be with it.
        self.picks = -1
        self.due = 0
        self.wait = 1
        self.on_trial = False  # it was left alone for long: what it shows next counts

    def expect(self, ln: float) -> None:
        """What its weight says: believed as long as nothing was observed."""
        self.prior = ln
        if not self.seen:
            self.ln = ln

    def settle(self, shift: float) -> None:
        """About once a second: the typical replica is `shift` slower than was thought; follow the usual speed."""
        self.ln -= shift
        if self.usual is not None:
            usual = self.usual - shift
            off = self.ln - usual
            self.usual = usual + off * (USUAL_UP if off > 0.0 else USUAL_DOWN)
        elif self.seen >= KNOWN:
            self.usual = self.ln

    @property
    def excess(self) -> float:
        """ln of how much slower it is than usual."""
        return 0.0 if self.usual is None else self.ln - self.usual

    @property
    def margin(self) -> float:
        """And by how much that may be luck: two standard deviations of a difference."""
        return 2.0 * float((2.0 * self.doubt) ** 0.5)

    def come_back(self, slowed: bool) -> None:
        """It comes back after an ejection. Its usual speed is believed (`slowed`: it was not so fast any more), and
        what it shows next counts for more."""
        if slowed and self.usual is not None and self.ln > self.usual:
            self.ln = self.usual
        if self.doubt < RETURNED:
            self.doubt = RETURNED
        self.trend = 0.0

    def observe(self, ln_ratio: float, noise: float, now: float, leeway: float = 0.0) -> None:
        """Take in ln(seconds here / seconds on a typical replica); `noise` is the variance of such residuals.

        `leeway`: a surprise no larger than this has another cause.
        """
        if self.on_trial:
            self._take_trial(ln_ratio, noise)
        sd = noise**0.5
        surprise = ln_ratio - self.ln
        if leeway:
            surprise = surprise - leeway if surprise > leeway else surprise + leeway if surprise < -leeway else 0.0
        if surprise > CLIP * sd:
            surprise = CLIP * sd
        elif surprise < -CLIP * sd:
            surprise = -CLIP * sd
        doubt = self.doubt + DRIFT * max(0.0, now - self.stamp)
        if doubt > DOUBT:
            doubt = DOUBT
        self.trend = trend = MEMORY * self.trend + (1.0 - MEMORY) * surprise / sd
        if (trend > ALARM or trend < -ALARM) and doubt < noise:
            doubt = noise
        gain = doubt / (doubt + noise)
        self.doubt = doubt * (1.0 - gain)
        self.stamp = now
        self.seen += 1
        ln = self.ln + gain * surprise
        self.ln = LIMIT if ln > LIMIT else -LIMIT if ln < -LIMIT else ln

    def _take_trial(self, ln_ratio: float, noise: float) -> None:
        """The first answer after it was left alone. What was believed may be out of date: either it still holds, or the
        replica is as its weight says, so the doubt is as wide as the two are apart. Only for the better: a large
        request is no reason to believe worse than before."""
        self.on_trial = False
        off = self.ln - self.prior
        wide = off * off if off * off > DOUBT else DOUBT
        better = min(self.ln - ln_ratio, max(off, CLIP * noise**0.5)) * wide / (wide + noise)
        if better > 0.0:
            self.ln -= better
            self.trend = 0.0
        self.wait = 1 if better > FORGIVEN else min(2 * self.wait, MOST_PATIENT)

    def value(self) -> float:
        """Seconds here for one second on a typical replica, as far as it is sure."""
        off = self.ln - self.prior
        square = off * off
        luck = SHRINK * self.doubt
        if square <= luck:
            return exp(self.prior)
        return exp(self.prior + off * (1.0 - luck / square))
