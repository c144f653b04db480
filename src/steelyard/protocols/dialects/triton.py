"""Triton: the Open Inference Protocol, with metrics on a port of their own."""

from __future__ import annotations

from ..load import MetricsLocation
from .oip import OpenInference


class Triton(OpenInference):
    name = "triton"
    metrics = MetricsLocation(port=8002)
