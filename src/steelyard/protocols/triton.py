"""Triton: the Open Inference Protocol, with metrics on a port of their own."""

from __future__ import annotations

from .load import MetricsAt
from .oip import OpenInference


class Triton(OpenInference):
    name = "triton"
    metrics = MetricsAt(port=8002)
