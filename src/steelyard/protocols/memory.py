"""What a server says when its device has no memory left for a request."""

from __future__ import annotations

import re

INSUFFICIENT_STORAGE = 507
MAX_ERROR_BODY_BYTES = 64 << 10  # bytes of an error's body
# As PyTorch, CUDA's libraries, TensorFlow, ONNX Runtime, vLLM, Triton, C++ and Python put it.
_OUT_OF_MEMORY = re.compile(
    rb"out of memory|OutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|bad_alloc|MemoryError"
    rb"|cannot allocate memory|failed to allocate (?:memory|requested buffer)|no available memory for the cache blocks",
    re.IGNORECASE,
)


def is_out_of_memory(status: int, body: bytes) -> bool:
    """Does this error say so? `body` may be cut."""
    return status == INSUFFICIENT_STORAGE or (
        status >= 500 and _OUT_OF_MEMORY.search(body[:MAX_ERROR_BODY_BYTES]) is not None
    )
