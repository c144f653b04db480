"""FastAPI with the agent: `python fastapi_app.py --port 8001 [--gateway http://127.0.0.1:9080]`.

The model is a small but real one: naive Bayes, trained at the start on the sentences below. That takes no time, so
`--load-seconds` waits, as if there were weights to load.
"""

import argparse
import math
import threading
import time
from collections import Counter

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from steelyard.replica import ReplicaAgent

SENTENCES = {
    "good": ["a wonderful warm film", "I loved every minute", "great acting and a good story", "a joy to watch"],
    "bad": ["a dull cold film", "I hated every minute", "poor acting and a weak story", "a waste of time"],
}


class Sentiment:
    def __init__(self) -> None:
        self.counts = {label: Counter(" ".join(texts).lower().split()) for label, texts in SENTENCES.items()}
        self.words = set().union(*self.counts.values())

    def __call__(self, text: str) -> dict[str, float]:
        logs = {label: sum(self._log(label, word) for word in text.lower().split()) for label in self.counts}
        most = max(logs.values())
        odds = {label: math.exp(value - most) for label, value in logs.items()}
        return {label: round(value / sum(odds.values()), 4) for label, value in odds.items()}

    def _log(self, label: str, word: str) -> float:
        counts = self.counts[label]
        return math.log((counts[word] + 1) / (counts.total() + len(self.words)))


class Review(BaseModel):
    text: str
    seconds: float = 0.0  # to wait, as if the model were larger


def application(agent: ReplicaAgent, load_seconds: float) -> FastAPI:
    app = FastAPI()
    app.add_middleware(agent.middleware)  # last of all middlewares, so that it is the outermost
    models: list[Sentiment] = []

    def load() -> None:
        time.sleep(load_seconds)
        models.append(Sentiment())
        agent.ready()

    @app.post("/sentiment")
    def sentiment(review: Review) -> dict[str, float]:
        time.sleep(review.seconds)
        return models[0](review.text)

    threading.Thread(target=load, daemon=True).start()
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--gateway", help="admin address of Steelyard")
    parser.add_argument("--load-seconds", type=float, default=5.0)
    given = parser.parse_args()
    agent = ReplicaAgent(model="sentiment", gateway=given.gateway, url=f"http://127.0.0.1:{given.port}")
    uvicorn.run(application(agent, given.load_seconds), host="127.0.0.1", port=given.port)
