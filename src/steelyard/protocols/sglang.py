"""SGLang: OpenAI's endpoints, and a readiness of its own."""

from __future__ import annotations

from .health import Question, Questions
from .load import MetricsAt
from .openai import OpenAI

# It generates a token, if none is being generated anyway. `/health` was 200 for whatever lives until the two were made
# one; now both are 503 while it loads, so neither proves life, but any answer does.
GENERATE = Question("/health_generate", instead=Question("/health"))


class Sglang(OpenAI):
    name = "sglang"
    metrics = MetricsAt()

    def questions(self, model: str) -> Questions:
        return Questions((GENERATE,))
