"""An application of Ray Serve as its quick start has it, with a model that takes 20 ms."""

import asyncio

from ray import serve
from starlette.requests import Request


@serve.deployment
class Translator:
    async def __call__(self, request: Request) -> str:
        text = await request.json()
        await asyncio.sleep(0.02)
        return text[::-1]


app = Translator.bind()
