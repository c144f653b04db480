"""Arguments of the caller, checked before anything changes. Each error names the option."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import TypeVar

from ..core.errors import OptionError
from ..core.options import HedgeOptions, OutlierDetectionOptions, RetryOptions
from ..core.outcome import Outcome
from ..core.replica import check_weight

T = TypeVar("T")


def seconds(name: str, value: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or value < 0:
        raise OptionError(f"{name}: must be a number of seconds, at least 0, not {value!r}")
    return float(value)


def positive_seconds(name: str, value: float) -> float:
    if not seconds(name, value):
        raise OptionError(f"{name}: must be more than 0 seconds; None means no limit")
    return float(value)


def outcome(value: Outcome | str) -> Outcome:
    if isinstance(value, Outcome):
        return value
    for known in Outcome:
        if known.label == value:
            return known
    raise OptionError(f"outcome: must be one of {', '.join(o.label for o in Outcome)}, not {value!r}")


def feature_numbers(features: Sequence[float]) -> tuple[float, ...]:
    try:
        if not isinstance(features, str | bytes):
            numbers = tuple(float(x) for x in features)
            if all(isfinite(x) and x >= 0 for x in numbers):
                return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    raise OptionError(f"features: must be numbers of at least 0, not {features!r}")


def strings(**given: object) -> None:
    for name, text in given.items():
        if not isinstance(text, str):
            raise OptionError(f"{name}: must be a string, not {text!r}")


def integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionError(f"{name}: must be a whole number, not {value!r}")


def boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name}: must be True or False, not {value!r}")
    return value


def function(name: str, value: object, of: str) -> None:
    if not callable(value):
        raise OptionError(f"{name}: must be a function of {of}, not {value!r}")


def outlier_detection(value: bool | OutlierDetectionOptions) -> OutlierDetectionOptions:
    if isinstance(value, bool):
        return OutlierDetectionOptions(enabled=value)
    return _instance("outlier_detection", value, OutlierDetectionOptions)


def hedging(value: bool | HedgeOptions) -> HedgeOptions:
    return HedgeOptions(enabled=value) if isinstance(value, bool) else _instance("hedge", value, HedgeOptions)


def retrying(value: bool | RetryOptions) -> RetryOptions:
    if isinstance(value, bool):
        return RetryOptions() if value else RetryOptions(max_attempts=1)
    return _instance("retry", value, RetryOptions)


def _instance(name: str, value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise OptionError(f"{name}: must be True, False or {kind.__name__}, not {value!r}")
    return value


def replica_id(id: object) -> None:
    if not isinstance(id, str) or not id:
        raise OptionError(f"replicas: an id must be a non-empty string, not {id!r}")


def replica_ids(replicas: Iterable[str]) -> list[str]:
    if isinstance(replicas, str) or not isinstance(replicas, Iterable):
        raise OptionError(f"replicas: must be a list of ids, not {replicas!r}")
    ids = list(replicas)
    if not ids:
        raise OptionError("replicas: must name at least one")
    for id in ids:
        replica_id(id)
    doubled = sorted(id for id, times in Counter(ids).items() if times > 1)
    if doubled:
        raise OptionError(f"replicas: {', '.join(map(repr, doubled))} given more than once")
    return ids


def weights_by_id(ids: list[str], weights: Mapping[str, float] | Sequence[float] | None) -> dict[str, float]:
    if weights is None:
        return dict.fromkeys(ids, 1.0)
    if isinstance(weights, Mapping):
        unknown = [id for id in weights if id not in ids]
        if unknown:
            raise OptionError(f"weights: no replica {', '.join(map(repr, unknown))}")
        found = {id: weights.get(id, 1.0) for id in ids}
    else:
        if not isinstance(weights, Sequence) or isinstance(weights, str):
            raise OptionError(f"weights: must be a list of numbers or a mapping by id, not {weights!r}")
        if len(weights) != len(ids):
            raise OptionError(f"weights: {len(weights)} given for {len(ids)} replicas")
        found = dict(zip(ids, weights, strict=True))
    for id, weight in found.items():
        check_weight(id, weight)
    return found
