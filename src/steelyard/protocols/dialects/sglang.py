"""SGLang: OpenAI's endpoints, and a readiness of its own."""

from __future__ import annotations

from ..health import ProbePlan, ServerRequest
from ..load import MetricsLocation
from .openai import OpenAI

# It generates a token, if none is being generated anyway. `/health` was 200 for whatever lives until the two were made
# one; now both are 503 while it loads, so neither proves life, but any answer does.
GENERATE_REQUEST = ServerRequest("/health_generate", fallback=ServerRequest("/health"))


class Sglang(OpenAI):
    name = "sglang"
    metrics = MetricsLocation()

    def probe_plan(self, model: str) -> ProbePlan:
        return ProbePlan((GENERATE_REQUEST,))
