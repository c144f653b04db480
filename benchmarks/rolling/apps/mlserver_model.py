"""A model of MLServer as its documentation has it, which takes 20 ms."""

import asyncio

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Echo(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        await asyncio.sleep(0.02)
        words = StringCodec.decode_input(payload.inputs[0])
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output("echo", words)])
