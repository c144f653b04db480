"""An MLServer runtime: a softmax layer in numpy, after a pause if the request's parameter `pause_ms` says so."""

import asyncio
import os

import numpy as np
import tiny
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor, Parameters


class Scorer(MLModel):
    async def load(self) -> bool:
        self.inputs = [
            MetadataTensor(name="x", datatype="FP32", shape=[-1, -1]),
            MetadataTensor(name="bias", datatype="FP32", shape=[-1, tiny.CLASSES]),
        ]
        self.outputs = [
            MetadataTensor(name="probabilities", datatype="FP32", shape=[-1, tiny.CLASSES]),
            MetadataTensor(name="labels", datatype="INT64", shape=[-1]),
        ]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        given = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        if missing := {"x", "bias"} - given.keys():
            raise InferenceError(f"inputs missing: {', '.join(sorted(missing))}")
        await asyncio.sleep(getattr(payload.parameters, "pause_ms", 0) / 1e3)
        probabilities, labels = tiny.score(given["x"].astype(np.float32), given["bias"].astype(np.float32))
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output("probabilities", probabilities),
                NumpyCodec.encode_output("labels", labels),
            ],
            parameters=Parameters(headers={"x-served-by": os.environ["MLSERVER_HTTP_PORT"]}),
        )
