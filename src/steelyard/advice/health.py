"""Warnings about how the replicas of a model are found, probed and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from ..config import HealthConfig, LoadMetricsConfig, ModelConfig
from ..documents import Key
from ..protocols import find_dialect
from ..units import format_seconds
from .models import Findings, may_generate

LIVENESS_PATHS = ("/", "/ping", "/live", "/livez", "/health/live", "/v1/models", "/v2", "/v2/health/live", "/metrics")
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh")
MAX_DETECTION_SECONDS = 60.0  # to find a dead replica
MIN_PROBE_INTERVAL_SECONDS = 0.25
MIN_INFERENCE_INTERVAL_SECONDS = 10.0
MIN_SCRAPE_INTERVAL_SECONDS = 2.0


def no_readiness_probe(key: Key, model: ModelConfig) -> Findings:
    """`health.enabled: false`"""
    if not model.health.enabled:
        what = "Without a readiness probe, requests are sent to replicas that still load the model."
        yield (*key, "health", "enabled"), what, "Remove it to ask as the dialect says, or give health.path."


def liveness_only(key: Key, model: ModelConfig) -> Findings:
    """a readiness path that only proves liveness"""
    if model.health.inference is not None:
        return  # that proves more
    for where, target in _ready_paths(model):
        path = target.partition("?")[0]
        if (path.rstrip("/") or "/") in LIVENESS_PATHS:
            what = f"{path} answers before the model is loaded: it proves that the server is up, not that it is ready."
            do = "Use /v2/models/NAME/ready (OIP), /health (vLLM, TGI), /health_generate (SGLang), or leave path out."
            yield (*key, *where), what, do


def _ready_paths(model: ModelConfig) -> Iterator[tuple[Key, str]]:
    if model.health.path:
        yield ("health", "path"), model.health.path
    for place, replica in enumerate(model.replicas):
        if replica.ready:
            yield ("replicas", place, "ready"), replica.ready


def unknown_readiness_path(key: Key, model: ModelConfig) -> Findings:
    """no known readiness path"""
    health = model.health
    configured = model.dialect or health.path or health.command or health.inference is not None
    if health.enabled and not configured and not (model.replicas and all(replica.ready for replica in model.replicas)):
        what = (
            "The usual paths are tried, and a replica that knows none of them counts as ready when it answers at all."
        )
        yield key, what, "Give its dialect, or the path that says whether the model is loaded as health.path."


def probe_overrun(key: Key, model: ModelConfig) -> Findings:
    """`timeout` of a probe above its interval"""
    health = model.health
    if health.enabled and health.timeout > health.interval:
        times = f"{format_seconds(health.timeout)}, and the next is due after {format_seconds(health.interval)}"
        what = f"A probe may take {times}, so a replica that hangs is found late."
        yield (*key, "health", "timeout"), what, "Make timeout shorter than interval, or interval longer."


def slow_detection(key: Key, model: ModelConfig) -> Findings:
    """a hung replica stays for over a minute"""
    seconds = _detection_seconds(model.health)
    if model.health.enabled and seconds > MAX_DETECTION_SECONDS:
        what = f"A replica that hangs gets requests for up to {format_seconds(seconds)}."
        yield (*key, "health", "interval"), what, "Lower interval, timeout or fall: 5s, 2s and 2 find it in 9 s."


def _detection_seconds(health: HealthConfig) -> float:
    """At worst: it hangs just after a good probe, and `fall` probes find no answer."""
    return health.interval + health.fall * max(health.timeout, min(health.interval, health.loading_interval))


def frequent_probes(key: Key, model: ModelConfig) -> Findings:
    """more than four probes a second"""
    for name in ("interval", "loading_interval"):
        seconds = getattr(model.health, name)
        if model.health.enabled and seconds < MIN_PROBE_INTERVAL_SECONDS:
            what = (
                f"A probe every {format_seconds(seconds)} takes time from the replica, and more so when it is loading."
            )
            yield (*key, "health", name), what, "Use 500ms or more: failing requests are noticed without any probe."


def frequent_inference(key: Key, model: ModelConfig) -> Findings:
    """an inference probe more often than every ten seconds"""
    health, inference = model.health, model.health.inference
    if (
        health.enabled
        and inference is not None
        and (seconds := max(inference.interval, health.interval)) < MIN_INFERENCE_INTERVAL_SECONDS
    ):
        what = f"Every replica does a real inference each {format_seconds(seconds)}, only to be probed."
        yield (*key, "health", "inference", "interval"), what, "Use 30s or more: the plain probe is asked in between."


def shell_placeholder(key: Key, model: ModelConfig) -> Findings:
    """a name that others choose in a shell script"""
    command = model.health.command
    if not command or PurePath(command[0]).name not in SHELLS:
        return
    for place, argument in enumerate(command):
        name = next((name for name in ("id", "model") if f"{{{name}}}" in argument and argument != f"{{{name}}}"), None)
        if name is not None:
            what = f"The shell runs what is in {{{name}}}, and a replica that registers may choose that."
            yield (*key, "health", "command", place), what, f'Write "$STEELYARD_{name.upper()}" in the script instead.'


def frequent_scrapes(key: Key, model: ModelConfig) -> Findings:
    """metrics of LLM engines read more often than every two seconds"""
    if _metrics_are_read(model) and model.load_metrics.interval < MIN_SCRAPE_INTERVAL_SECONDS and may_generate(model):
        what = f"vLLM can hang when its metrics are read every {format_seconds(model.load_metrics.interval)}."
        yield (*key, "load_metrics", "interval"), what, "Use 5s: the gateway's own counts are always up to date."


def unused_load(key: Key, model: ModelConfig) -> Findings:
    """settings of metrics that are off"""
    load, usual = model.load_metrics, LoadMetricsConfig()
    if not _metrics_are_read(model) and (load.path or load.port or load.interval != usual.interval):
        reason = f"the dialect {model.dialect} knows of none" if model.dialect else "no dialect says that there are any"
        reason = "enabled is false" if load.enabled is False else reason
        yield (
            (*key, "load_metrics"),
            f"Metrics are not read, because {reason}.",
            "Add enabled: true, or leave it all out.",
        )


def _metrics_are_read(model: ModelConfig) -> bool:
    if model.load_metrics.enabled is not None:
        return model.load_metrics.enabled
    return bool(model.dialect) and find_dialect(model.dialect).metrics is not None


def no_hold_down(key: Key, model: ModelConfig) -> Findings:
    """discovery with `hold_down: 0`"""
    for place, source in enumerate(model.discovery):
        if not source.hold_down:
            what = f"When {source.describe()} suddenly lists far fewer replicas, the rest are gone at once."
            yield (*key, "discovery", place, "hold_down"), what, "Use 60s or so, time enough to correct a mistake."
