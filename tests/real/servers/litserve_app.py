"""`litserve_app.py PORT`: an OpenAI-compatible LitServe server: chat (streamed or not), completions, embeddings.

`metadata={"pace_ms": "50"}` in a chat makes every word take so long, as a larger model would.
"""

import asyncio
import json
import sys

import litserve
import numpy as np
import tiny
from litserve.specs.openai import ChatCompletionRequest
from litserve.specs.openai_embedding import EmbeddingRequest

DEFAULT_WORDS = 16


class Chat(litserve.LitAPI):
    def setup(self, device):
        self.writer = tiny.TinyWriter()

    async def decode_request(self, request: ChatCompletionRequest):
        return request

    async def predict(self, request, context):
        prompt = " ".join(str(message.content) for message in request.messages)
        pace = float((request.metadata or {}).get("pace_ms", 0)) / 1e3
        said = self.writer.words(prompt, request.max_completion_tokens or request.max_tokens or DEFAULT_WORDS)
        for place, word in enumerate(said):
            await asyncio.sleep(pace)
            yield {
                "role": "assistant",
                "content": word if place == 0 else " " + word,
                "prompt_tokens": len(prompt.split()) if place == 0 else 0,
                "completion_tokens": 1,
                "total_tokens": 1 + (len(prompt.split()) if place == 0 else 0),
            }


class Text(litserve.LitAPI):
    """`/v1/completions`, which LitServe has no spec for."""

    def setup(self, device):
        self.writer = tiny.TinyWriter()

    def predict(self, request):
        said = self.writer.words(request["prompt"], request.get("max_tokens") or DEFAULT_WORDS)
        choice = {"index": 0, "text": " ".join(said), "finish_reason": "length", "logprobs": None}
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 0,
            "model": request["model"],
            "choices": [choice],
        }


class Embed(litserve.LitAPI):
    def setup(self, device):
        pass

    def decode_request(self, request: EmbeddingRequest):
        return request.ensure_list()

    def predict(self, texts):
        return np.stack([tiny.embed(text) for text in texts])

    def encode_response(self, output):
        return {"embeddings": output.tolist(), "prompt_tokens": len(output), "total_tokens": len(output)}


class Witness:
    """Tells what this replica saw: `GET /seen`, and on each answer the port it listens on and its peer's."""

    def __init__(self, app, port):
        self.app = app
        self.port = port
        self.open = self.served = self.left = 0

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] == "/health":
            await self.app(scope, receive, send)
        elif scope["path"] == "/seen":
            body = json.dumps({"open": self.open, "served": self.served, "left": self.left}).encode()
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": body})
        else:
            await self._watch(scope, receive, send)

    async def _watch(self, scope, receive, send):
        marks = [(b"x-served-by", str(self.port).encode()), (b"x-peer", str(scope["client"][1]).encode())]
        done = False

        async def send_wrapper(message):
            nonlocal done
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *marks]
            done = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        self.open += 1
        try:
            await self.app(scope, receive, send_wrapper)
        finally:
            self.open -= 1
            self.served += done
            self.left += not done


if __name__ == "__main__":
    port = int(sys.argv[1])
    apis = [
        Chat(spec=litserve.OpenAISpec(), enable_async=True),
        Text(api_path="/v1/completions"),
        Embed(spec=litserve.OpenAIEmbeddingSpec()),
    ]
    server = litserve.LitServer(apis, accelerator="cpu", middlewares=[(Witness, {"port": port})])
    server.run(host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False, log_level="warning")
