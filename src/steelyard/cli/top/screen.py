"""The screen of `steelyard top`, a pure function of what is known and the size of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from rich.text import Text

from ...control.observability.views import (
    DeviceView,
    FleetEvent,
    LiveModelView,
    LiveReplicaView,
    LiveView,
    ObjectiveView,
    SampleView,
    SloView,
)
from .formatting import (
    DASH,
    Column,
    age_text,
    bar,
    clean,
    fit_columns,
    join_names,
    number,
    seconds,
    size,
    sparkline,
    table,
    truncate,
)

STATE_COLOURS = {
    "ready": "green",
    "loading": "yellow",
    "starting": "yellow",
    "unloaded": "blue",
    "draining": "cyan",
    "ejected": "red",
    "unreachable": "red bold",
}
UNHEALTHY = ("loading", "starting", "ejected", "unreachable")
SORT_ORDERS = ("load", "p99", "rate", "state", "name")
KEYS_HELP = "q quit · j k ↓ ↑ scroll · s sort · m next model · p pause · ? help"
MAX_SPARKLINE_COLUMNS = 30
MAX_EVENTS = 5
MAX_SLOS = 6
MAX_ALARMS = 5
COMPACT_LINES = 16  # of a terminal: with fewer, only models and replicas are shown
REPLICA_NAME_COLUMNS = 24


class ViewOptions(NamedTuple):
    model: str = ""  # empty: all
    sort: str = SORT_ORDERS[0]
    scroll: int = 0
    paused: bool = False
    help: bool = False


class Snapshot(NamedTuple):
    view: LiveView
    samples: Mapping[str, Sequence[SampleView]] = {}
    events: Sequence[FleetEvent] = ()  # the latest last
    age: float = 0.0  # seconds since the last word
    problem: str = ""  # why there is none since


def render(known: Snapshot, shown: ViewOptions, width: int, height: int | None) -> list[Text]:
    """`height` None: as many lines as it takes."""
    view = known.view
    models = [m for m in view.models if shown.model in ("", m.model)]
    replicas = sort_replicas([r for r in view.replicas if shown.model in ("", r.model)], shown.sort)
    top = [_header(known, shown), *_warnings(known, shown, height), *_models(models, known.samples, width, height)]
    if height is None or height >= COMPACT_LINES:
        top += _slo(view.slo, shown.model, width, height)
    bottom = _devices(view.devices, width) + _events(known.events, shown.model)
    keys = [Text(KEYS_HELP, style="dim")] if height is not None else []
    if shown.help:
        keys = [Text(line) for line in _help(shown)]
    room = None if height is None else max(0, height - len(top) - len(bottom) - len(keys))
    if room is not None and room < 4:  # replicas matter more than what happened
        bottom, room = [], max(0, height - len(top) - len(keys)) if height is not None else None
    lines = top + _replicas(replicas, shown, width, room) + bottom
    lines = lines + keys if height is None else lines[: max(0, height - len(keys))] + keys[:height]
    return [truncate(line, width) for line in lines]


def sort_replicas(replicas: list[LiveReplicaView], sort: str) -> list[LiveReplicaView]:
    def unhealthy(replica: LiveReplicaView) -> bool:
        return replica.state in UNHEALTHY or replica.recent.failed > 0 or replica.recent.failing

    states = list(STATE_COLOURS)
    by_name = sorted(replicas, key=lambda r: (r.model, r.id))
    match sort:
        case "load":
            return sorted(by_name, key=lambda r: (not unhealthy(r), -r.work, -r.in_flight))
        case "p99":
            return sorted(by_name, key=lambda r: -r.p99)
        case "rate":
            return sorted(by_name, key=lambda r: -r.rate)
        case "state":
            return sorted(by_name, key=lambda r: states.index(r.state) if r.state in states else -1, reverse=True)
    return by_name


def _header(known: Snapshot, shown: ViewOptions) -> Text:
    view = known.view
    line = Text(f"steelyard {clean(view.version)}", style="bold")
    counts = f"  up {age_text(view.uptime)}  workers {view.workers}  replicas {len(view.replicas)}"
    line.append(counts, style="not bold")
    if shown.paused:
        line.append("  PAUSED: p resumes", style="yellow")
    return line


def _warnings(known: Snapshot, shown: ViewOptions, height: int | None) -> list[Text]:
    lines = []
    if known.problem:
        what = f"{clean(known.problem)}; data is {age_text(known.age)} old, retrying every 2 s"
        lines.append(Text(what, style="red bold"))
    elif known.age > 5.0:
        lines.append(Text(f"nothing new for {age_text(known.age)}", style="yellow"))
    if shown.model and shown.model not in [m.model for m in known.view.models]:
        lines.append(Text(f"there is no model {clean(shown.model)!r} (now); m: all models", style="yellow"))
    return lines + [Text(line, style="red") for line in _alarms([clean(a.message) for a in known.view.alarms], height)]


def _alarms(alarms: list[str], height: int | None) -> list[str]:
    if height is not None and height < COMPACT_LINES and len(alarms) > 1:
        return [f"! {len(alarms)} alarms: {' · '.join(alarms)}"]
    more = [f"! and {len(alarms) - MAX_ALARMS} more alarms"] if len(alarms) > MAX_ALARMS else []
    return [*(f"! {alarm}" for alarm in alarms[:MAX_ALARMS]), *more]


def _models(
    models: Sequence[LiveModelView], samples: Mapping[str, Sequence[SampleView]], width: int, height: int | None
) -> list[Text]:
    """At most a third of the terminal."""
    most = len(models) if height is None else max(1, height // 3 if height >= COMPACT_LINES else height // 6)
    return table(_model_columns(samples, width), models[:most], width) + _more_line(len(models) - most, "models")


def _model_columns(samples: Mapping[str, Sequence[SampleView]], width: int) -> list[Column[LiveModelView]]:
    spark = min(MAX_SPARKLINE_COLUMNS, max(8, (width - 96) // 2))
    return [
        Column("model", 18, 0, lambda m: clean(m.model), left=True),
        Column("policy", 14, 9, lambda m: clean(m.policy), left=True),
        Column("ready", 9, 1, _ready),
        Column("req/s", 7, 2, lambda m: number(m.sample.rate)),
        Column("bad/s", 6, 4, lambda m: Text(number(m.sample.bad_rate), style="red" if m.sample.bad_rate else "")),
        Column("p50", 8, 5, lambda m: seconds(m.sample.p50)),
        Column("p99", 8, 3, lambda m: seconds(m.sample.p99)),
        Column("waiting", 7, 6, lambda m: number(m.sample.waiting)),
        Column("oldest", 7, 10, lambda m: seconds(m.oldest_wait)),
        Column("in flight", 9, 7, lambda m: number(m.sample.in_flight)),
        Column("work", 8, 8, lambda m: seconds(m.sample.work)),
        Column("p99 trend", spark, 11, lambda m: sparkline([p.p99 for p in samples.get(m.model, ())], spark)),
        Column("req/s trend", spark, 12, lambda m: sparkline([p.rate for p in samples.get(m.model, ())], spark)),
    ]


def _ready(model: LiveModelView) -> Text:
    wanted = "" if model.desired is None or model.desired == model.replicas else f"→{model.desired}"
    asleep = model.desired == 0 and not model.replicas  # it is as it should be
    some = model.failing or model.ready < model.replicas
    style = "dim" if asleep else "red" if not model.ready else "yellow" if some else "green"
    failing = f" !{model.failing}" if model.failing else ""
    return Text(f"{model.ready}/{model.replicas}{wanted}{failing}", style=style)


def _slo(slos: Sequence[SloView], model: str, width: int, height: int | None) -> list[Text]:
    objectives = [(slo, o) for slo in slos if model in ("", slo.model) for o in slo.objectives]
    if not objectives:
        return []
    objectives.sort(key=lambda one: one[1].error_budget_remaining)
    most = MAX_SLOS if height is None else max(1, min(MAX_SLOS, height // 8))
    return [Text(), *table(_SLO_COLUMNS, objectives[:most], width), *_more_line(len(objectives) - most, "SLOs")]


def _window(index: int, objective: ObjectiveView) -> str:
    """Of windows that cover the same time, only the first is shown."""
    if index >= len(objective.windows) or (kept := objective.windows[index].attainment) is None:
        return DASH
    covered = objective.windows[index].covered_seconds
    if index and objective.windows[index - 1].covered_seconds is not None:
        return DASH
    return f"{kept:.4g}%" if covered is None else f"{kept:.4g}% {age_text(covered)}"


def _budget(objective: ObjectiveView) -> Text:
    left = objective.error_budget_remaining
    style = "red" if left <= 0.0 else "yellow" if left < 0.25 else "green"
    return Text(f"{bar(left, 10)} {left * 100:4.0f}%", style=style)


def _burn(objective: ObjectiveView) -> Text:
    burn = objective.windows[0].burn_rate if objective.windows else 0.0
    style = "red bold" if objective.alert == "page" else "yellow" if objective.alert else ""
    return Text(f"{number(burn)}×{' ' + objective.alert if objective.alert else ''}", style=style)


_SloRow = tuple[SloView, ObjectiveView]
_SLO_COLUMNS: list[Column[_SloRow]] = [
    Column("SLO", 20, 0, lambda p: clean(f"{p[0].model} {p[0].tenant}".strip()), left=True),
    Column("kind", 12, 2, lambda p: p[1].kind, left=True),
    Column("target", 8, 5, lambda p: f"{p[1].target:g}%"),
    Column("5 m", 10, 3, lambda p: _window(0, p[1])),
    Column("1 h", 10, 4, lambda p: _window(2, p[1])),
    Column("6 h", 10, 6, lambda p: _window(3, p[1])),
    Column("budget left", 16, 1, lambda p: _budget(p[1]), left=True),
    Column("burn rate", 12, 7, lambda p: _burn(p[1]), left=True),
]


def _replicas(replicas: list[LiveReplicaView], shown: ViewOptions, width: int, room: int | None) -> list[Text]:
    if not replicas:
        return [Text(), Text("no replicas", style="dim")][: room if room is not None else 2]
    blank = [Text()] if room is None or room > 4 else []
    rows = len(replicas) if room is None else max(0, room - len(blank) - 1)
    if len(replicas) > rows > 1:
        rows -= 1  # for the line that says how many more there are
    first = min(shown.scroll, max(0, len(replicas) - rows))
    lines = [*blank, *table(_replica_columns(replicas, width), replicas[first : first + rows], width)]
    lines += _more_line(len(replicas) - rows, f"replicas, by {shown.sort}" + (f", from {first + 1}" if first else ""))
    return lines if room is None else lines[:room]


def _replica_columns(replicas: list[LiveReplicaView], width: int) -> list[Column[LiveReplicaView]]:
    """Where there is no room for a column of models, the model is part of the name."""
    models = {clean(replica.model) for replica in replicas}
    columns = _REPLICA_COLUMNS
    if any(replica.recent.failed or replica.recent.failing for replica in replicas):
        columns = [*_REPLICA_COLUMNS[:3], _FAILED_COLUMN, *_REPLICA_COLUMNS[3:]]
    if len(models) < 2 or _MODEL_COLUMN in fit_columns(columns, width):
        return columns
    letters = zip(min(models), max(models), strict=False)  # all others are between these two
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], letters)))

    def name(replica: LiveReplicaView) -> str:
        return join_names(clean(replica.model), clean(replica.id), REPLICA_NAME_COLUMNS, shared)

    return [Column("model/replica", REPLICA_NAME_COLUMNS, 0, name, left=True), *columns[1:]]


def _state(replica: LiveReplicaView) -> Text:
    style = STATE_COLOURS.get(replica.state, "")
    if replica.state == "ready" and (replica.recent.failing or replica.recent.failed):
        style = "red" if replica.recent.failing else "yellow"
    return Text(clean(replica.state), style=style)


def _failed(replica: LiveReplicaView) -> Text:
    """Share of failed attempts in the last minute, the last error and its age."""
    recent = replica.recent
    if not recent.failed and not recent.failing:
        return Text(DASH)
    share = 100 * recent.failed / max(1, recent.attempts)
    error = clean(recent.last_error).removeprefix("replica_")
    said = f"{share:.0f}% {error} {age_text(recent.last_error_age or 0.0)}" if share >= 1 else f"<1% {error}"
    return Text(said, style="red" if recent.failing else "yellow")


def _slow(slowness: float | None) -> str:
    if slowness is None:
        return DASH
    return f"×{slowness:.2g}" if slowness < 99 else f"×{slowness:.0f}"


_MODEL_COLUMN: Column[LiveReplicaView] = Column("model", 14, 8, lambda r: clean(r.model), left=True)
_FAILED_COLUMN: Column[LiveReplicaView] = Column("recent failures", 18, 1, lambda r: _failed(r), left=True)
_REPLICA_COLUMNS: list[Column[LiveReplicaView]] = [
    Column("replica", REPLICA_NAME_COLUMNS, 0, lambda r: clean(r.id), left=True),
    _MODEL_COLUMN,
    Column("state", 11, 1, lambda r: _state(r), left=True),
    Column("in flight", 9, 3, lambda r: number(r.in_flight)),
    Column("work", 8, 2, lambda r: seconds(r.work)),
    Column("req/s", 7, 4, lambda r: number(r.rate)),
    Column("p50", 8, 7, lambda r: seconds(r.p50)),
    Column("p99", 8, 5, lambda r: seconds(r.p99)),
    Column("slowness", 8, 6, lambda r: _slow(r.slowness)),
    Column("age", 6, 10, lambda r: age_text(r.state_age)),
    Column("reason", 40, 11, lambda r: clean(r.reason), left=True),
]


def _devices(devices: Sequence[DeviceView], width: int) -> list[Text]:
    if not devices:
        return []
    return [Text(), *table(_DEVICE_COLUMNS, devices[:4], width), *_more_line(len(devices) - 4, "devices")]


def _memory(device: DeviceView) -> Text:
    share = device.committed / device.budget if device.budget else 0.0
    return Text(bar(share, 16), style="red" if share > 1.0 else "yellow" if share > 0.9 else "")


_DEVICE_COLUMNS: list[Column[DeviceView]] = [
    Column("device", 22, 0, lambda d: clean(d.device), left=True),
    Column("memory", 16, 1, lambda d: _memory(d), left=True),
    Column("committed", 9, 2, lambda d: size(d.committed)),
    Column("budget", 9, 3, lambda d: size(d.budget) if d.capacity is not None else DASH),
    Column("measured", 9, 4, lambda d: size(d.measured)),
    Column("in flight", 9, 5, lambda d: number(d.requests)),
]


def _events(events: Sequence[FleetEvent], model: str) -> list[Text]:
    lines = [Text()]
    for event in [event for event in events if not model or event.model in ("", model)][-MAX_EVENTS:]:
        where = "/".join(part for part in (event.model, event.replica) if part)
        message = clean(f"{where}: {event.message}" if where else event.message)
        lines.append(Text.assemble((f"{age_text(event.age):>5} ago  ", "dim"), message))
    return lines if lines[1:] else []


def _more_line(count: int, what: str) -> list[Text]:
    return [Text(f"… {count} more {what}", style="dim")] if count > 0 else []


def _help(shown: ViewOptions) -> list[str]:
    return [
        KEYS_HELP,
        f"sorted by {shown.sort}; s: {', '.join(SORT_ORDERS)} · model: {clean(shown.model) or 'all'}",
        "ready 3/3 !1: one of them fails attempts · recent failures: share in the last minute, and the last error",
        "in flight: requests there now · work: seconds they should still take · slowness ×2: half as fast as typical",
        "burn rate 1×: the error budget lasts exactly its period · budget left: share of it that remains",
    ]
