"""For Triton's Python backend: the softmax layer and the replica's name, after a pause if `pause_ms` says so."""

import json
import os
import sys
import time

import numpy as np
import triton_python_backend_utils as triton

sys.path.insert(0, os.environ["TINY_PATH"])
import tiny  # Triton's stub knows no paths but those of its environment


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = triton.get_input_tensor_by_name(request, "x").as_numpy()
        bias = triton.get_input_tensor_by_name(request, "bias").as_numpy()
        time.sleep(json.loads(request.parameters() or "{}").get("pause_ms", 0) / 1e3)
        if bias.shape[0] not in (1, x.shape[0]):
            return triton.InferenceResponse(
                error=triton.TritonError(f"bias has {bias.shape[0]} rows and x has {x.shape[0]}")
            )
        probabilities, labels = tiny.score(x, bias)
        replica = np.array([os.environ["REPLICA"].encode()], dtype=np.object_)
        tensors = [("probabilities", probabilities), ("labels", labels), ("replica", replica)]
        return triton.InferenceResponse([triton.Tensor(name, value) for name, value in tensors])
