"""The load that model servers report: Prometheus metrics, and ORCA reports in answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from math import nan
from typing import Any, NamedTuple

from .health import json_object


class EngineLoad(NamedTuple):
    """None: not reported."""

    running: float | None = None  # requests, over all engines of the server
    waiting: float | None = None  # requests in its own queue
    cache: float | None = None  # share of the key-value cache in use, of the fullest engine
    memory_used: float | None = None  # bytes of accelerator memory
    memory_total: float | None = None
    utilization: float | None = None  # 0 … 1, as the server defines it
    started: float | None = None  # process_start_time_seconds: changes when the server restarts
    held: float | None = None  # bytes of its device that this server holds
    base: float | None = None  # and with nothing running: its model
    request_bytes: float | None = None  # that the request of this answer needed; only in ORCA reports
    kv_tokens: float | None = None  # that its key-value caches hold
    max_running: float | None = None  # requests that it runs at once
    preempted: float | None = None  # requests that lost their place in the cache and are computed anew, since it began

    @property
    def requests(self) -> float | None:
        if self.running is None and self.waiting is None:
            return None
        return (self.running or 0.0) + (self.waiting or 0.0)


class MetricsLocation(NamedTuple):
    path: str = "/metrics"
    port: int = 0  # 0: its own


_SGLANG = {
    "num_running_reqs": "running",
    "num_queue_reqs": "waiting",
    "token_usage": "cache",
    "max_total_num_tokens": "kv_tokens",
    "num_retracted_requests_total": "preempted",
}
ENGINE_METRICS = {  # prefix → rest of the name → field of EngineLoad
    "vllm:": {
        "num_requests_running": "running",
        "num_requests_waiting": "waiting",
        "kv_cache_usage_perc": "cache",
        "gpu_cache_usage_perc": "cache",  # the older name
        "num_preemptions_total": "preempted",
    },
    "sglang:": _SGLANG,
    "sglang_": _SGLANG,
    "tgi_": {"batch_current_size": "running", "queue_size": "waiting"},
    "trtllm_": {
        "num_requests_running": "running",
        "num_requests_waiting": "waiting",
        "kv_cache_utilization": "cache",
        "gpu_memory_usage_bytes": "memory_used",
    },
    "nv_": {  # Triton
        "inference_pending_request_count": "waiting",
        "gpu_memory_used_bytes": "memory_used",
        "gpu_memory_total_bytes": "memory_total",
    },
    "GPU": {"MemoryUsed": "memory_used"},  # TorchServe
    "steelyard_": {  # the agent
        "requests_running": "running",
        "requests_waiting": "waiting",
        "memory_used_bytes": "memory_used",
        "memory_total_bytes": "memory_total",
        "memory_held_bytes": "held",
        "memory_base_bytes": "base",
        "memory_request_bytes": "request_bytes",
        "utilization": "utilization",
    },
    "process_": {"start_time_seconds": "started"},
}
METRIC_FIELDS = {f"{engine}{name}": what for engine, names in ENGINE_METRICS.items() for name, what in names.items()}
# Metrics whose labels say what they are: name → label → its value → field.
LABELLED_METRICS = {
    "nv_trt_llm_kv_cache_block_metrics": (
        "kv_cache_block_type",
        {"max": "kv_blocks", "tokens_per": "block_tokens", "fraction": "cache"},
    ),
    "nv_trt_llm_request_metrics": (
        "request_type",
        {"scheduled": "running", "waiting": "waiting", "max": "max_running"},
    ),
}
VLLM_CACHE_INFO = "vllm:cache_config_info"  # its value is 1: block_size="16",num_gpu_blocks="27000"
METRIC_UNITS_BYTES = {"GPUMemoryUsed": 2.0**20}  # not in bytes

MAX_METRICS_BYTES = 8 << 20
MAX_METRIC_LINES = 4096  # that count
MAX_ORCA_BYTES = 16 << 10
MAX_NUMBER_CHARS = 40


def _highest(shares: Iterable[float]) -> float:
    return min(1.0, max(shares))


# The largest plausible value, and how several combine: engines and devices add up, caches do not.
_RULES: dict[str, tuple[float, Callable[[Iterable[float]], float]]] = {
    "running": (1e6, sum),
    "waiting": (1e6, sum),
    "cache": (1.0, max),
    "memory_used": (1e15, sum),
    "memory_total": (1e15, sum),
    "held": (1e15, max),
    "base": (1e15, max),
    "request_bytes": (1e15, max),
    "utilization": (100.0, _highest),  # in ORCA, overload is more than 1
    "started": (1e11, max),
    "kv_tokens": (1e12, sum),
    "kv_blocks": (1e12, sum),
    "block_tokens": (1e6, max),
    "max_running": (1e6, sum),
    "preempted": (1e15, sum),
}
# ORCA reports name them with or without the engine.
_NAMED = {name: what for names in (*ENGINE_METRICS.values(), METRIC_FIELDS) for name, what in names.items()}
_NAMED["application_utilization"] = "utilization"
_FIELDS = {
    **METRIC_FIELDS,
    VLLM_CACHE_INFO: "kv_tokens",
    **{f"{name}{{{value}}}": what for name, (_, of) in LABELLED_METRICS.items() for value, what in of.items()},
}

# Begins with a literal newline, which is found at the speed of memchr.
_LINE = re.compile(
    r"\n({})".format(
        "|".join(
            (
                *(f"{engine}(?:{'|'.join(names)})" for engine, names in ENGINE_METRICS.items()),
                *LABELLED_METRICS,
                VLLM_CACHE_INFO,
            )
        )
    ).encode()
    + rb'(?:[ \t]*+\{((?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+)\}[ \t]*+|[ \t]++)([^ \t\r\n]++)'
)
_PART = re.compile(rb'(?:^|,)\s*priority="[^"]')  # SGLang: priority="" is the total
_RANK = re.compile(rb'\b(?:tp|pp|moe_ep)_rank="[^"]*"')  # SGLang: these ranks of an engine share requests


def read_metrics(text: bytes) -> EngineLoad | None:
    """None: no load in it. Leaves out what makes no sense. Never raises."""
    if len(text) > MAX_METRICS_BYTES:
        text = text[: text.rfind(b"\n", 0, MAX_METRICS_BYTES) + 1]
    series: dict[str, dict[bytes, list[float]]] = {}
    for line in islice(_LINE.finditer(b"\n" + text), MAX_METRIC_LINES):
        name, labels = line[1].decode(), line[2] or b""
        if not _PART.search(labels):
            value = _number(line[3]) * METRIC_UNITS_BYTES.get(name, 1.0)
            if name == VLLM_CACHE_INFO:
                value = _number(_label(labels, "num_gpu_blocks")) * _number(_label(labels, "block_size"))
            elif name in LABELLED_METRICS:
                name = f"{name}{{{_label(labels, LABELLED_METRICS[name][0]).decode('ascii', 'replace')}}}"
                if name not in _FIELDS:
                    continue
            series.setdefault(name, {}).setdefault(_RANK.sub(b"", labels), []).append(value)
    return _combine({name: list(engines.values()) for name, engines in series.items()}, _FIELDS)


def read_orca(report: bytes) -> EngineLoad | None:
    """Of the header `endpoint-load-metrics`; None: no load in it. Never raises."""
    if len(report) > MAX_ORCA_BYTES:
        return None
    form, _, said = report.strip().partition(b" ")
    form = form.upper()
    series: dict[str, list[list[float]]] = {}
    for name, value in _in_json(said) if form == b"JSON" else _in_text(said) if form == b"TEXT" else ():
        if name in _NAMED:
            series.setdefault(name, []).append([_number(value)])  # a repeated name is another engine
    return _combine(series, _NAMED)


def _in_json(said: bytes) -> Iterator[tuple[str, Any]]:
    report = json_object(said)
    for field in ("named_metrics", "namedMetrics"):  # the second is how protobuf writes it
        named = report.get(field)
        if isinstance(named, dict):
            yield from named.items()
    for field in ("application_utilization", "applicationUtilization"):
        if field in report:
            yield "application_utilization", report[field]


def _in_text(said: bytes) -> Iterator[tuple[str, bytes]]:
    for pair in said.split(b","):
        name, _, value = pair.rpartition(b"=" if b"=" in pair else b":")
        yield name.strip().decode("ascii", "replace").removeprefix("named_metrics."), value.strip()


def _number(value: Any) -> float:
    """NaN: it is none."""
    if isinstance(value, bool | str) or (isinstance(value, bytes) and (len(value) > MAX_NUMBER_CHARS or b"_" in value)):
        return nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return nan


def _label(labels: bytes, name: str) -> bytes:
    """Empty: there is none. Values with escapes are none of ours."""
    match = re.search(rb'(?:^|[,\s])%b\s*=\s*"([^"\\]*)"' % name.encode(), labels)
    return match[1] if match is not None else b""


def _combine(series: Mapping[str, Iterable[list[float]]], fields: Mapping[str, str]) -> EngineLoad | None:
    """`series`: by name, the equal values of each engine."""
    found: dict[str, float] = {}
    for name, engines in series.items():
        what = fields[name]
        largest, unite = _RULES[what]
        if all(0.0 <= value <= largest for values in engines for value in values):
            # Two names of the same: an old and a new one, or an engine's and the agent's around it.
            found[what] = max(found.get(what, 0.0), unite(max(values) for values in engines))
    blocks, block_tokens = found.pop("kv_blocks", 0.0), found.pop("block_tokens", 0.0)
    if blocks and block_tokens:
        found["kv_tokens"] = blocks * block_tokens
    return EngineLoad(**found) if found else None


INSUFFICIENT_STORAGE = 507
MAX_ERROR_BODY_BYTES = 64 << 10
# As PyTorch, CUDA's libraries, TensorFlow, ONNX Runtime, vLLM, Triton, C++ and Python put it.
_OUT_OF_MEMORY = re.compile(
    rb"out of memory|OutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|bad_alloc|MemoryError"
    rb"|cannot allocate memory|failed to allocate (?:memory|requested buffer)|no available memory for the cache blocks",
    re.IGNORECASE,
)


def is_out_of_memory(status: int, body: bytes) -> bool:
    """`body` may be cut."""
    if status == INSUFFICIENT_STORAGE:
        return True
    return status >= 500 and _OUT_OF_MEMORY.search(body[:MAX_ERROR_BODY_BYTES]) is not None
