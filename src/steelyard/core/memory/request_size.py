"""Device memory that a request needs while it runs, by its features, learned from measured peaks.

Idea: too high an estimate costs throughput, too low a one costs the server, so every step errs upwards: an upper bound
over the features (peak_model.py), raised after out-of-memory errors (oom_floors.py). The supervisor learns and sends
its `state`; workers load it.

Source: docs/decisions/0014-bytes-of-a-request.md. Limits: learns only from peaks that belong to one request.
"""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

from .oom_floors import OomFloors
from .peak_model import PeakModel
from .upper_bound import FIRST_FEATURE, MAX_FEATURE, MAX_FEATURES, UpperBound, basis

MAX_BYTES = 1 << 60  # more than any device; fits the ledger's cells
MAX_KINDS = 16
KIND_TTL_SAMPLES = 1024  # without one of a kind, after which it may make room for another
SAMPLES_BEFORE_RESHAPE = 16  # of another shape in a row before a kind starts over


class RequestSizeState(NamedTuple):
    """What the supervisor tells the workers."""

    known: bool = False
    declared: tuple[float, float] = (0.0, 0.0)  # for each request, and for each unit of the first feature
    fits: dict[str, tuple[float, ...]] = {}  # noqa: RUF012  (by kind of request: UpperBound.to_numbers)
    floors: tuple[tuple[str, int, tuple[float, ...]], ...] = ()  # OomFloors.state
    learning: tuple[str, ...] = ()  # kinds with too few measurements to tell sizes apart


class RequestSizeModel:
    def __init__(self, request: float = 0.0, per_unit: float = 0.0, state: RequestSizeState | None = None) -> None:
        """Starts from the declared bytes, or from the `state` of another process."""
        self.declared = (_positive_or_zero(request), _positive_or_zero(per_unit))
        self.samples = 0
        self.version = 0  # grows with every change of a bound
        self._uppers: dict[str, UpperBound] = {}  # by kind
        self._peaks: dict[str, PeakModel] = {}
        self._floors = OomFloors()
        self._learning: frozenset[str] = frozenset()
        if state is not None:
            self.load_state(state)

    @property
    def known(self) -> bool:
        return bool(self._uppers) or any(self.declared)

    def upper_bound(self, features: tuple[float, ...], kind: str = "") -> int:
        """Bytes: an upper quantile, never the mean. Called for every request, so without numpy."""
        upper = self._uppers.get(kind)
        if upper is not None:
            amount = max(upper.bytes_for(features), self._floors.bytes_for(features, kind))
        else:  # nothing was measured of its kind: the most of any kind
            amount = max(self._by_declaration(features), self._floors.bytes_for(features, None))
            for other in self._uppers.values():
                amount = max(amount, other.bytes_for(features))
        return int(amount) if amount < MAX_BYTES else MAX_BYTES

    def is_extrapolated(self, features: tuple[float, ...], kind: str = "") -> bool:
        """Is the request far larger than any measured, or of a new kind? It is better run alone than refused."""
        upper = self._uppers.get(kind)
        return upper.is_extrapolated(features) if upper is not None else not any(self.declared)

    def is_learning(self, kind: str = "") -> bool:
        """Are measurements of this kind too few to tell sizes apart? Then the largest seen counts for all."""
        return kind in self._learning or (kind not in self._uppers and not any(self.declared))

    def _by_declaration(self, features: tuple[float, ...]) -> float:
        size = features[0] if features and features[0] > 0.0 else 0.0
        return self.declared[0] + self.declared[1] * min(size, MAX_FEATURE)

    def observe(self, features: tuple[float, ...], kind: str, measured: int) -> None:
        if not 0 <= measured <= MAX_BYTES or not all(0.0 <= x <= MAX_FEATURE for x in features):
            return
        measured = max(measured, 1)  # errors are relative
        self.samples += 1
        changed = self._floors.decay(features, kind)
        shape = tuple([float(x) for x in features[:MAX_FEATURES]])
        peaks = self._peaks_for(kind, len(shape))
        if peaks is not None and (peaks.observe(shape, float(measured)) or kind not in self._uppers):
            self._uppers[kind] = peaks.upper
            changed = True
        if peaks is not None and peaks.converged is (kind in self._learning):
            self._learning = self._learning ^ {kind}
            changed = True
        self.version += changed

    def record_out_of_memory(self, features: tuple[float, ...], kind: str, at_least: int) -> None:
        """A request like this ran out of memory: its bound is at least this from now on."""
        if at_least > 0:
            self.version += self._floors.add(features, kind, min(int(at_least), MAX_BYTES))

    def _peaks_for(self, kind: str, width: int) -> PeakModel | None:
        """None: there are too many kinds, or it has not the shape of its kind."""
        peaks = self._peaks.get(kind)
        if peaks is None:
            if kind not in self._uppers and len(self._uppers) >= MAX_KINDS and not self._forget_a_kind():
                return None
        elif peaks.width != width:
            peaks.other_shape_samples += 1
            if peaks.other_shape_samples < SAMPLES_BEFORE_RESHAPE:
                return None
            del self._uppers[kind]
            peaks = None
        if peaks is None:
            peaks = self._peaks[kind] = PeakModel(self._prior(kind, width))
        peaks.other_shape_samples = 0
        peaks.last_sample = self.samples
        return peaks

    def _forget_a_kind(self) -> bool:
        last = {kind: self._peaks[kind].last_sample if kind in self._peaks else 0 for kind in self._uppers}
        oldest = min(last, key=last.__getitem__)
        if self.samples - last[oldest] <= KIND_TTL_SAMPLES:
            return False
        del self._uppers[oldest]
        self._peaks.pop(oldest, None)
        return True

    def _prior(self, kind: str, width: int) -> UpperBound:
        """Before anything was measured: what another process learned, or what is declared."""
        known = self._uppers.get(kind)
        if known is not None and len(known.largest_seen) == width:
            return known
        coefficients = [0.0] * len(basis(width))
        coefficients[0] = self.declared[0]
        if width:
            coefficients[basis(width).index(FIRST_FEATURE)] = self.declared[1]
        # A declaration also holds beyond what was seen.
        nothing = [0.0] * width
        return UpperBound(nothing, nothing, [MAX_FEATURE if any(self.declared) else 0.0] * width, coefficients)

    def clear_floors(self) -> None:
        """For requests that are not measured, when none ran out of memory for long."""
        if self._floors.state():
            self._floors = OomFloors()
            self.version += 1

    def state(self) -> RequestSizeState:
        fits = {kind: upper.to_numbers() for kind, upper in self._uppers.items()}
        return RequestSizeState(self.known, self.declared, fits, self._floors.state(), tuple(sorted(self._learning)))

    def load_state(self, state: RequestSizeState) -> None:
        self.declared = state.declared
        self._uppers = {kind: UpperBound.from_numbers(numbers) for kind, numbers in state.fits.items()}
        self._peaks = {}
        self._floors = OomFloors(state.floors)
        self._learning = frozenset(state.learning)
        self.version += 1


def _positive_or_zero(amount: float) -> float:
    return float(amount) if isfinite(amount) and amount > 0.0 else 0.0
