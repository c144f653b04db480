"""Whether an exception means that memory ran out, by name: torch is not imported."""

from __future__ import annotations

import traceback

OUT_OF_MEMORY_MESSAGES = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "HIP out of memory",
    "RESOURCE_EXHAUSTED: Out of memory",  # JAX
    "Failed to allocate memory for requested buffer",  # ONNX Runtime
)
MAX_CHAIN_DEPTH = 8  # exceptions behind an exception


def clear_frames(problem: BaseException | None, depth: int = MAX_CHAIN_DEPTH) -> None:
    """A log or an error tracker that keeps the exception must not keep what its frames hold."""
    if problem is not None and depth > 0:
        traceback.clear_frames(problem.__traceback__)
        clear_frames(problem.__cause__ or problem.__context__, depth - 1)


def is_out_of_memory(problem: BaseException | None, depth: int = MAX_CHAIN_DEPTH) -> bool:
    """It, its cause, or one of a group."""
    if problem is None or depth == 0:
        return False
    behind = [problem.__cause__ if problem.__suppress_context__ else problem.__context__]
    if isinstance(group := getattr(problem, "exceptions", None), tuple):  # of a group; before 3.11, a backport's
        behind += group[:8]
    return _is_out_of_memory_error(problem) or any(is_out_of_memory(one, depth - 1) for one in behind)


def _is_out_of_memory_error(problem: BaseException) -> bool:
    if isinstance(problem, MemoryError):
        return True
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(problem).__mro__):  # torch.cuda's and torch's own
        return True
    try:
        text = str(problem)
    except Exception:
        return False
    return any(words in text for words in OUT_OF_MEMORY_MESSAGES)
