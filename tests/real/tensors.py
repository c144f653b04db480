"""What the tests of tritonclient share: tensors in and out, and the right answer to them."""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from .servers.tiny import CLASSES, score

RNG = np.random.default_rng(3)
has_triton = (sys.platform, platform.machine()) == ("linux", "x86_64")  # as in servers/requirements.txt
needs_triton = pytest.mark.skipif(not has_triton, reason="there is no wheel with Triton for this machine")


def tensors(rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    return RNG.random((rows, width), dtype=np.float32), RNG.random((rows, CLASSES), dtype=np.float32)


def inputs(x: np.ndarray, bias: np.ndarray, binary: bool = True) -> list[triton.InferInput]:
    given = [triton.InferInput("x", x.shape, "FP32"), triton.InferInput("bias", bias.shape, "FP32")]
    for tensor, value in zip(given, (x, bias), strict=True):
        tensor.set_data_from_numpy(value, binary_data=binary)
    return given


def outputs(*names: str, binary: bool = True) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


def check(result: Any, x: np.ndarray, bias: np.ndarray) -> None:
    probabilities, labels = score(x, bias)
    np.testing.assert_allclose(result.as_numpy("probabilities"), probabilities, rtol=1e-5)
    np.testing.assert_array_equal(result.as_numpy("labels").ravel(), labels)  # MLServer makes a column of them
