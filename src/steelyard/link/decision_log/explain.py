"""A line of the decision log in words."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.policies import POLICIES, Policy, find_policy
from ...core.replica import State
from .lines import DecisionLine, LoggedAttempt, LoggedChoice

MIN_WAIT_SECONDS = 0.0005  # less is no wait
EXCLUSION_SENTENCES = {
    "starting": "not ready: not probed yet",
    "loading": "not ready: model loading",
    "unloaded": "model not loaded",
    "unreachable": "unreachable",
    "draining": "draining",
    "ejected": "ejected",
    "full": "full",
    "on_probation": "on probation: one request at a time",
    "deadline": "would miss the deadline",
    "insufficient_memory": "not enough memory",
    "failed_before": "already failed this request",
}
NOT_READY = {state.value for state in State if state is not State.READY}
WANTED = {"full": "a free slot", "on_probation": "a free slot", "insufficient_memory": "enough memory"}
OUTCOME_SENTENCES = {
    "": "it answered",
    "client_error": "it answered with a client error",
    "cancelled": "cancelled: the request had ended",
    "lost": "cancelled: another attempt was faster",
    "deadline_exceeded": "cancelled at the request's deadline",
    "client_deadline_exceeded": "cancelled at the client's own deadline",
    "unreachable": "no connection could be made",
    "overloaded": "the replica refused it as overloaded",
    "error": "the replica answered with an error",
    "out_of_memory": "the replica ran out of memory",
    "connection_lost": "the connection was lost before an answer",
    "timeout": "no answer began in time",
    "truncated": "the connection was lost in the middle of the answer",
}


def summary(line: DecisionLine) -> str:
    where = f"went to {line.attempts[-1].replica}" if line.attempts else "was sent to no replica"
    return f"{line.id} {where}{_because(line)}, and {_verdict(line)}."


def explain_line(line: DecisionLine) -> Iterator[tuple[str, str]]:
    yield "arrival", _arrival(line)
    yield "estimate", _estimate(line)
    look = deciding_choice(line)
    if look is not None:
        yield "choice", _choice(line, look)
        if look.excluded:
            yield "excluded", _exclusions(look)
    yield "queue", _wait(line)
    for number, attempt in enumerate(line.attempts, 1):
        yield f"attempt {number}", _attempt(attempt)
    yield "result", _end(line)
    if line.dropped:
        yield "gap", f"{line.dropped} lines before this one were lost: the disk did not keep up."


def deciding_choice(line: DecisionLine) -> LoggedChoice | None:
    """The choice that first sent it; else the last one."""
    return next((look for look in line.choices if look.chosen), line.choices[-1] if line.choices else None)


def score_meaning(line: DecisionLine) -> str:
    return line.score_meaning or _policy(line).score_meaning


def _policy(line: DecisionLine) -> type[Policy]:
    """A user's own policy is not imported: a log must not run code."""
    return find_policy(line.policy) if line.policy in POLICIES else Policy


def format_seconds(value: float) -> str:
    if value < 1e-6:
        return "0 s"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.4g} s" if value < 1000 else f"{value:.0f} s"


def _because(line: DecisionLine) -> str:
    look = deciding_choice(line)
    if look is None or not look.chosen:
        return ""
    if look.candidate_count == 1:
        return ", the only one that could take it"
    scored = [c for c in look.candidates if c.score is not None]
    chosen = next((c for c in scored if c.id == look.chosen), None)
    again = " at first" if len(line.attempts) > 1 else ""
    if chosen is None or chosen.score is None:
        return f", chosen by {line.policy}{again}"
    policy = _policy(line)
    if chosen.score > policy.exploration_ratio * min(c.score for c in scored if c.score is not None):
        return f", to explore whether it is still slow{again}"
    if policy.chosen_because:
        return f", {policy.chosen_because} of {look.candidate_count}{again}"
    return f", chosen of {look.candidate_count} by {line.policy}{again}"


def _verdict(line: DecisionLine) -> str:
    took = format_seconds(line.upload + line.seconds)
    match line.verdict:
        case "met":
            return f"took {took} (verdict: met)"
        case "late":
            return f"took {took}, longer than the SLO allows (fault: {line.fault or 'none'})"
        case "abandoned":
            return f"its client disconnected after {took}"
    reason = f"{line.reason}, " if line.reason else ""
    ended = "failed" if line.verdict == "failed" else "was refused"
    return f"{ended} after {took} ({reason}fault: {line.fault or 'none'})"


def _arrival(line: DecisionLine) -> str:
    said = f"Arrived at {line.time} for model {line.model} at worker {line.worker}"
    said += f", tenant {line.tenant}" if line.tenant else ""
    said += f", endpoint {line.call}" if line.call else ""
    said += f", priority {line.priority}" if line.priority else ""
    said += f", deadline {format_seconds(line.deadline)}" if line.deadline is not None else ""
    begins = line.first_byte_deadline
    said += f", first byte due in {format_seconds(begins)}" if begins is not None else ""
    upload = f" Its body took {format_seconds(line.upload)} to arrive." if line.upload > MIN_WAIT_SECONDS else ""
    return f"{said}.{upload}"


def _estimate(line: DecisionLine) -> str:
    known = f" from the features {', '.join(f'{x:g}' for x in line.features)}" if line.features else ""
    return f"Estimated at {format_seconds(line.estimate)} on a typical replica{known}.{_judged(line)}"


def _judged(line: DecisionLine) -> str:
    first = line.binding_deadline == "first_byte"
    deadline = line.first_byte_deadline if first else line.deadline
    if not line.binding_deadline or deadline is None:
        return ""
    name, what = ("first-byte", "first byte") if first else ("total", "end of the answer")
    predicted = f": {what} predicted after {format_seconds(line.expected)}, due after {format_seconds(deadline)}"
    return f" Held to its {name} deadline{predicted if line.expected else ''}."


def _exclusions(look: LoggedChoice) -> str:
    said = [
        f"{one.id} ({EXCLUSION_SENTENCES.get(one.reason, one.reason)}{f': {one.message}' if one.message else ''})"
        for one in look.excluded
    ]
    more = look.excluded_count - len(said)
    more_said = f" and {more} more" if more > 0 else ""
    return f"{_replicas_could(look.excluded_count)} not take it: {', '.join(said)}{more_said}."


def _replicas_could(count: int) -> str:
    return "1 replica could" if count == 1 else f"{count} replicas could"


def _choice(line: DecisionLine, look: LoggedChoice) -> str:
    if not look.candidate_count:
        return "No replica could take it."
    shown = f" (these are {len(look.candidates)} of them)" if len(look.candidates) < look.candidate_count else ""
    could = f"{_replicas_could(look.candidate_count)} take it{shown}."
    if not look.chosen:
        return f"{could} {line.policy} preferred to wait for a better one."
    return f"{could} {look.chosen} was chosen: {_rule(line, look)}"


def _rule(line: DecisionLine, look: LoggedChoice) -> str:
    if look.candidate_count == 1:
        return "it was the only candidate."
    policy = _policy(line)
    rule = policy.rule or "a custom policy"
    by = {c.id: c.score for c in look.candidates if c.score is not None}
    score = by.get(look.chosen)
    if score is None:
        return f"{line.policy} has no score; its rule is: {rule}."
    least = min(by.values())
    said = f"its score is {score:.4g} ({score_meaning(line)})"
    if score <= least:
        others = sorted(value for id, value in by.items() if id != look.chosen)
        if others and others[0] <= score:
            return f"{said}, tied with another: {policy.tie_break or f'{line.policy} took one of them'}."
        next_one = f"next best {others[0]:.4g}" if others else "the lowest"
        close = policy.score_tolerance > 1.0 and others and others[0] <= policy.score_tolerance * score
        return f"{said}, {next_one}{f'; {policy.tie_break}' if close else ''}."
    tie = policy.tie_break or f"the rule of {line.policy} is: {rule}"
    return f"{said}, the lowest is {least:.4g}; {tie}."


def _wait(line: DecisionLine) -> str:
    if line.waited <= MIN_WAIT_SECONDS:
        return "It was not queued."
    first = line.choices[0] if line.attempts and line.choices else deciding_choice(line)
    if first is not None and first.candidate_count and not first.chosen and first.after <= MIN_WAIT_SECONDS:
        reason = f"a slot was free, but {line.policy} expected a better one soon"
    else:
        reason = _cause(first)
    if not line.attempts:
        return f"Queued for {format_seconds(line.waited)} and never dispatched: {reason}."
    look = deciding_choice(line)
    others = f", {look.waiting} in the queue" if look is not None and look.waiting else ""
    return f"Queued for {format_seconds(line.waited)} until {line.attempts[0].replica} took it{others}: {reason}."


def _cause(look: LoggedChoice | None) -> str:
    """What its excluded replicas had in common, as far as all of them are known."""
    reasons = {one.reason for one in look.excluded} if look is not None else set()
    other = "other " if "failed_before" in reasons else ""
    wanted = dict.fromkeys(WANTED[reason] for reason in sorted(reasons & WANTED.keys()))
    if wanted:
        ready = "ready " if reasons & NOT_READY else ""
        return f"no {other}{ready}replica had {' and '.join(wanted)}"
    known = look is not None and look.excluded_count <= len(look.excluded)
    if known and reasons and reasons <= {"failed_before", *NOT_READY}:
        return f"no {other}replica was ready"
    return f"no {other}replica could take it"


def _attempt(attempt: LoggedAttempt) -> str:
    said = f"After {format_seconds(attempt.after)}: {attempt.replica}"
    said += " as a hedge" if attempt.hedged else ""
    if attempt.concurrent:
        said += f", with {attempt.concurrent} other request{'s' if attempt.concurrent > 1 else ''} there"
    took = f" after {format_seconds(attempt.seconds)}" if attempt.seconds is not None else ""
    said += f", predicted to take {format_seconds(attempt.predicted)}"
    return f"{said}; {OUTCOME_SENTENCES.get(attempt.outcome, attempt.outcome)}{took}{_prediction_error(attempt)}."


def _prediction_error(attempt: LoggedAttempt) -> str:
    if attempt.outcome or attempt.seconds is None or not attempt.predicted or not attempt.seconds:
        return ""
    ratio = attempt.seconds / attempt.predicted
    if 0.9 <= ratio <= 1.1:
        return ", as predicted"
    return f", {ratio:.3g} times the prediction" if ratio > 1 else f", {1 / ratio:.3g} times as fast as predicted"


def _end(line: DecisionLine) -> str:
    status = f"status {line.status}" if line.status else "no status"
    first = f", first byte after {format_seconds(line.first_byte)}" if line.first_byte else ""
    said = f"Finished after {format_seconds(line.seconds)} with {status}{first}. Verdict: {line.verdict}"
    said += f", fault: {line.fault}" if line.fault else ""
    return f"{said}, reason: {line.reason}." if line.reason else f"{said}."
