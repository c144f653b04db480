"""How slow one replica is against a typical one, learned from its residuals.

A scalar Kalman filter on ln(slowness). Its gain follows from how noisy the residuals are: where features explain the
sizes well, one slow answer is news; where they explain nothing, one large request must not look like a slow replica
(the mistake peak-EWMA makes). A run of residuals to one side opens the filter, so a real change is followed in a few
requests.
"""

from __future__ import annotations

from math import exp, log

DRIFT = 0.0025  # variance of ln(slowness) gained per second: about 5 % a second
DOUBT = 0.5  # variance of ln(slowness) for a replica not seen yet
MEMORY = 0.6  # of the trend
ALARM = 1.5  # three standard deviations of the trend at rest
LIMIT = log(1000.0)
FORGIVEN = log(2.0)


class Slowness:
    """State of the filter for one replica; `replica.slowness` is its readable result."""

    __slots__ = ("doubt", "ln", "seen", "stamp", "trend")

    def __init__(self, prior: float, now: float) -> None:
        self.ln = log(prior)
        self.doubt = DOUBT
        self.trend = 0.0
        self.stamp = now
        self.seen = 0

    def forgive(self) -> float:
        """It comes back after an ejection: give it a chance, and believe what it shows next."""
        self.ln = min(self.ln, FORGIVEN)
        self.doubt = DOUBT
        self.trend = 0.0
        return exp(self.ln)

    def observe(self, ln_ratio: float, noise: float, now: float) -> float:
        """Take in ln(seconds here / seconds on a typical replica); `noise`: the residuals' variance."""
        surprise = ln_ratio - self.ln
        doubt = self.doubt + DRIFT * (now - self.stamp)
        if doubt > DOUBT:
            doubt = DOUBT
        self.trend = trend = MEMORY * self.trend + (1.0 - MEMORY) * surprise / noise**0.5
        if (trend > ALARM or trend < -ALARM) and doubt < noise:
            doubt = noise
        gain = doubt / (doubt + noise)
        self.doubt = doubt * (1.0 - gain)
        self.stamp = now
        self.seen += 1
        ln = self.ln + gain * surprise
        self.ln = ln = LIMIT if ln > LIMIT else -LIMIT if ln < -LIMIT else ln
        return exp(ln)
