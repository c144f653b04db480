"""Does an exception mean that memory ran out? Looked at by name: torch is not imported for it."""

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
MAX_CHAIN_DEPTH = 8  # exceptions behind an exception that are looked at


def clear_frames(problem: BaseException | None, depth: int = MAX_CHAIN_DEPTH) -> None:
    """Of what its frames hold: whoever keeps the exception (a log, a tracker of errors) must not keep that too."""
    if problem is not None and depth > 0:
        traceback.clear_frames(problem.__traceback__)
        clear_frames(problem.__cause__ or problem.__context__, depth - 1)


def is_out_of_memory(problem: BaseException | None, depth: int = MAX_CHAIN_DEPTH) -> bool:
    """It, or what it came from, or one of a group."""
    if problem is None or depth == 0:
        return False
    if _is_out_of_memory_error(problem):
        return True
    if isinstance(problem, BaseExceptionGroup) and any(
        is_out_of_memory(one, depth - 1) for one in problem.exceptions[:8]
    ):
        return True
    behind = problem.__cause__ if problem.__suppress_context__ else problem.__context__
    return is_out_of_memory(behind, depth - 1)


def _is_out_of_memory_error(problem: BaseException) -> bool:
    if isinstance(problem, MemoryError):
        return True
    names = {kind.__name__ for kind in type(problem).__mro__}
    if "OutOfMemoryError" in names:  # torch.cuda's and torch's own
        return True
    try:
        text = str(problem)
    except Exception:
        return False
    return any(words in text for words in OUT_OF_MEMORY_MESSAGES)
