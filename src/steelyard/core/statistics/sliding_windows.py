"""Sums, averages and maxima over the last seconds, of a bounded number of samples."""

from __future__ import annotations

from collections import deque

MAX_SAMPLES = 240
MAX_STEPS = 64


class SlidingTotals:
    """Growing sums, remembered for `longest` seconds and interpolated between samples."""

    def __init__(self, longest: float) -> None:
        self._spacing = 2.0 * longest / MAX_SAMPLES
        self._samples: deque[tuple[float, tuple[float, ...]]] = deque(maxlen=MAX_SAMPLES + 2)

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, now: float, *totals: float) -> None:
        samples = self._samples
        if len(samples) >= 2 and now - samples[-2][0] < self._spacing:
            samples.pop()
        samples.append((now, totals))

    def over(self, seconds: float, ago: float = 0.0) -> tuple[float, tuple[float, ...]]:
        """Of the `seconds` that ended `ago` before the last sample: how many are known, and the growth then."""
        last = self._samples[-1][0]
        end = max(last - ago, self._samples[0][0])
        begin = max(end - seconds, self._samples[0][0])
        before, after = self._at(begin), self._at(end)
        return end - begin, tuple(b - a for a, b in zip(before, after, strict=True))

    def _at(self, when: float) -> tuple[float, ...]:
        later = self._samples[-1]
        for sample in reversed(self._samples):
            if sample[0] <= when:
                if later[0] <= sample[0]:
                    return sample[1]
                part = (when - sample[0]) / (later[0] - sample[0])
                return tuple(a + (b - a) * part for a, b in zip(sample[1], later[1], strict=True))
            later = sample
        return later[1]


class SlidingAverage:
    """Averages over time; each sample holds since the one before."""

    def __init__(self, longest: float) -> None:
        self._totals = SlidingTotals(longest)
        self._sums: tuple[float, ...] = ()
        self._values: tuple[float, ...] = ()
        self._last = 0.0

    def add(self, now: float, *values: float) -> None:
        if not self._sums:
            self._sums = (0.0,) * len(values)
            self._last = now
        step = max(0.0, now - self._last)
        self._sums = tuple(s + v * step for s, v in zip(self._sums, values, strict=True))
        self._values = values
        self._last = max(now, self._last)
        self._totals.add(self._last, *self._sums)

    def over(self, seconds: float) -> tuple[float, ...]:
        span, sums = self._totals.over(seconds)
        return tuple(s / span for s in sums) if span > 0 else self._values


class SlidingMaximum:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._steps: deque[tuple[float, float]] = deque()  # time and value; later ones are lower

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, now: float, value: float) -> float:
        steps = self._steps
        while steps and steps[-1][1] <= value:
            steps.pop()
        if len(steps) >= MAX_STEPS:  # join two: as long as the later, as high as the earlier
            when, _ = steps.pop()
            steps.append((when, steps.pop()[1]))
        steps.append((now, value))
        while steps[0][0] < now - self.seconds:
            steps.popleft()
        return steps[0][1]
