"""The rules of what is chosen by name and takes options of its own: a policy, a scaler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..documents import Key, Problem, did_you_mean_or_list
from .forms import is_serializable


def option_problems(
    key: Key, name: str, given: Mapping[str, Any], known: Mapping[str, Any], make: Callable[[], object]
) -> Iterator[Problem]:
    """`known`: the options it takes; `make` makes one with those that are given."""
    unknown = [option for option in given if option not in known]
    for option in unknown:
        hint = did_you_mean_or_list(option, known, otherwise="it takes") or " (it takes none)"
        yield Problem((*key, option), f"{name} has no option {option!r}{hint}")
    if not is_serializable(given):
        yield Problem(key, "must be text, numbers, true or false, or lists and mappings of these")
    elif not unknown:
        try:
            make()
        except Exception as problem:  # whatever a user's class raises
            yield Problem(key, str(problem))
