"""A decision log (link/decision_log/lines.py) read back: requests of one model and the replicas that served them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...core.errors import OptionError
from ...link.decision_log.lines import FleetLine, LoggedAttempt, current_line

SINGLE_CHUNK_SHARE = 0.9  # of its time: a later first byte came with the whole answer
MAX_LINE_BYTES = 1 << 20
MAX_REQUESTS = 2_000_000
MIN_ANSWERED_REQUESTS = 20  # fewer say nothing of a p99
NEW_RECORDING_GAP_SECONDS = 600.0  # without a line, or back in time: another recording begins
ANSWERED_VERDICTS = ("met", "late")


class RecordedRequest(msgspec.Struct, frozen=True, tag_field="kind", tag="request"):
    at: float  # when it arrived, CLOCK_MONOTONIC
    worker: int
    model: str
    policy: str
    verdict: str
    seconds: float
    tenant: str = ""
    fault: str = ""
    status: int = 0
    call: str = ""
    features: tuple[float, ...] = ()
    key: str = ""
    priority: int = 0
    deadline: float | None = None
    first_byte_deadline: float | None = None
    idempotent: bool = True
    first_byte: float = 0.0
    prompt_tokens: int = 0  # 0, as the next two: not known
    output_tokens: int = 0
    cached_tokens: int = 0  # of the prompt, found in the cache of its engine
    attempts: tuple[LoggedAttempt, ...] = ()
    dropped: int = 0

    @property
    def answered(self) -> bool:
        return self.verdict in ANSWERED_VERDICTS and self.status < 400 and bool(self.attempts)

    @property
    def abandoned(self) -> bool:
        return self.verdict == "abandoned"

    @property
    def answer_deadline(self) -> float | None:
        """Of an answer in one piece, or of none, the first byte is due with the last."""
        first = self.first_byte_deadline
        if first is None or 0.0 < self.first_byte < SINGLE_CHUNK_SHARE * self.seconds:
            return self.deadline
        return first if self.deadline is None else min(first, self.deadline)


Line = RecordedRequest | FleetLine


@dataclass
class Recording:
    model: str
    fleet: list[FleetLine] = field(default_factory=list)
    requests: list[RecordedRequest] = field(default_factory=list)
    unreadable_lines: int = 0
    dropped_lines: int = 0  # the disk did not keep up
    client_errors: int = 0  # requests left out: they cost next to nothing
    earlier_recordings: int = 0  # in the same file

    @property
    def begin(self) -> float:
        return min(self.requests[0].at, self.fleet[0].at)

    @property
    def seconds(self) -> float:
        return self.requests[-1].at - self.begin

    @property
    def policy(self) -> str:
        """The one that decided on most."""
        return Counter(one.policy for one in self.requests).most_common(1)[0][0]


def read_recording(path: Path, model: str = "") -> Recording:
    """The last recording of `path.1` and `path`, of the model named or the only one."""
    recordings: dict[str, Recording] = {}
    unreadable = 0
    latest = float("-inf")
    earlier = 0
    for line in _lines(path):
        if line is None:
            unreadable += 1
            continue
        if latest - NEW_RECORDING_GAP_SECONDS > line.at or line.at > latest + NEW_RECORDING_GAP_SECONDS > 0.0:
            earlier += any(recording.requests for recording in recordings.values())
            recordings = {}
            latest = line.at
        latest = max(latest, line.at)
        _add_line(recordings.setdefault(line.model, Recording(line.model)), line)
    recording = _choose_model(path, recordings, model)
    recording.unreadable_lines, recording.earlier_recordings = unreadable, earlier
    recording.requests.sort(key=lambda one: one.at)
    first = min(recording.fleet, key=lambda line: line.at).worker  # each worker tells of the same fleet
    recording.fleet = sorted((line for line in recording.fleet if line.worker == first), key=lambda line: line.at)
    return recording


def _add_line(recording: Recording, line: Line) -> None:
    recording.dropped_lines += line.dropped
    if isinstance(line, FleetLine):
        recording.fleet.append(line)
    elif line.fault == "client" and line.verdict not in ("abandoned", "late"):
        recording.client_errors += 1
    elif len(recording.requests) >= MAX_REQUESTS:
        raise OptionError(f"the log has more than {MAX_REQUESTS:,} requests of {line.model!r}: replay a part of it")
    else:
        recording.requests.append(line)


def _choose_model(path: Path, recordings: dict[str, Recording], model: str) -> Recording:
    asked = sorted(name for name, recording in recordings.items() if recording.requests)
    names = ", ".join(asked)
    if not asked:
        what = "no requests in it; it should be a decision log (`decision_log` in the configuration)"
        raise OptionError(f"{path}: {what}")
    if not model and len(asked) > 1:
        raise OptionError(f"{path}: has several models, name one with --model: {names}")
    if model and model not in asked:
        raise OptionError(f"{path}: no requests of model {model!r} in it; there are {names}")
    recording = recordings[model or asked[0]]
    if not recording.fleet:
        raise OptionError(f"{path}: does not say how {recording.model!r} was served (no line of kind `fleet`)")
    share = min(line.sample_rate for line in recording.fleet)
    if share < 1.0:
        raise OptionError(f"{path}: only {share:.3g} of the requests is in it; to replay, record with `sample_rate: 1`")
    answered = sum(one.answered for one in recording.requests)
    if answered < MIN_ANSWERED_REQUESTS:
        raise OptionError(f"{path}: {answered} answered requests of {recording.model!r} are too few to replay")
    return recording


def _lines(path: Path) -> Iterator[Line | None]:
    """None: a line that cannot be read. One cut off at the end is being written."""
    older = path.with_name(f"{path.name}.1")
    for file in (older, path) if older.exists() else (path,):
        try:
            yield from _lines_of(file)
        except OSError as problem:
            raise OptionError(f"{file}: cannot read it: {problem.strerror or problem}") from None


def _lines_of(path: Path) -> Iterator[Line | None]:
    decode = msgspec.json.Decoder(RecordedRequest | FleetLine).decode
    with path.open("rb") as file:
        while text := file.readline(MAX_LINE_BYTES):
            if not text.endswith(b"\n"):
                if len(text) < MAX_LINE_BYTES:
                    return
                while text and not text.endswith(b"\n"):
                    text = file.readline(MAX_LINE_BYTES)
                yield None
                continue
            try:
                yield decode(current_line(text))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                yield None
