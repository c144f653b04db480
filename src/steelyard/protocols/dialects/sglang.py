"""SGLang: OpenAI's endpoints, and a readiness of its own."""

from __future__ import annotations

from ..health import ProbePlan, ServerRequest
from ..load import MetricsLocation
from .openai import OpenAI

# Generates a token unless one is under way. Older versions answer `/health` with 200 while they load, newer ones with
# 503: neither proves life, but any answer does.
GENERATE_REQUEST = ServerRequest("/health_generate", fallback=ServerRequest("/health"))


class Sglang(OpenAI):
    name = "sglang"
    metrics = MetricsLocation()

    def probe_plan(self, model: str) -> ProbePlan:
        return ProbePlan((GENERATE_REQUEST,))
