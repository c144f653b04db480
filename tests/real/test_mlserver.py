"""`tritonclient.http`, unchanged, through the gateway to MLServer, which speaks the protocol in JSON."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.http.aio import InferenceServerClient as AsyncClient
from tritonclient.utils import InferenceServerException

from .processes import Program
from .tensors import check, inputs, outputs, tensors

pytestmark = pytest.mark.xdist_group("real")
WANTED = outputs("probabilities", "labels", binary=False)
JSON = {"content-type": "application/json"}  # without it aiohttp says octet-stream, which MLServer itself refuses


def test_is_ready_and_describes_itself(triton_client: InferenceServerClient) -> None:
    assert triton_client.is_model_ready("linear")
    metadata = triton_client.get_model_metadata("linear")
    assert metadata["name"] == "linear"
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["x", "bias"]
    assert [tensor["name"] for tensor in metadata["outputs"]] == ["probabilities", "labels"]


def test_infers(triton_client: InferenceServerClient) -> None:
    x, bias = tensors(7, 20)
    result = triton_client.infer("linear", inputs(x, bias, binary=False), outputs=WANTED, request_id="seven")
    check(result, x, bias)
    assert result.get_response()["id"] == "seven"


def test_infers_from_some_megabytes_of_text(triton_client: InferenceServerClient) -> None:
    x, bias = tensors(500, 300)
    check(triton_client.infer("linear", inputs(x, bias, binary=False), outputs=WANTED), x, bias)


def test_many_at_once_are_never_mixed(triton_client: InferenceServerClient) -> None:
    given = [tensors(rows, 10) for rows in range(1, 25)]
    waiting = [triton_client.async_infer("linear", inputs(*pair, binary=False), outputs=WANTED) for pair in given]
    for handle, (x, bias) in zip(waiting, given, strict=True):
        check(handle.get_result(), x, bias)


def test_the_async_client(gateway: Program) -> None:
    async def one(client: AsyncClient, x: np.ndarray, bias: np.ndarray) -> None:
        check(await client.infer("linear", inputs(x, bias, binary=False), outputs=WANTED, headers=JSON), x, bias)

    async def all_of_them() -> None:
        async with AsyncClient(f"127.0.0.1:{gateway.port}") as client:
            assert await client.is_model_ready("linear")
            await asyncio.gather(*(one(client, *tensors(rows, 30)) for rows in range(1, 31)))

    asyncio.run(all_of_them())


def test_the_servers_own_error_comes_back(triton_client: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="inputs missing: bias"):
        triton_client.infer("linear", inputs(*tensors(1, 4), binary=False)[:1])


def test_a_client_that_times_out_leaves_nothing_behind(gateway: Program, triton_client: InferenceServerClient) -> None:
    x, bias = tensors(1, 4)
    with (
        InferenceServerClient(f"127.0.0.1:{gateway.port}", network_timeout=0.3) as hasty,
        pytest.raises(TimeoutError),
    ):
        hasty.infer("linear", inputs(x, bias, binary=False), parameters={"pause_ms": 2000})
    check(triton_client.infer("linear", inputs(x, bias, binary=False), outputs=WANTED), x, bias)


def test_a_deadline_in_a_header_is_kept(triton_client: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="deadline") as problem:
        triton_client.infer(
            "linear",
            inputs(*tensors(1, 4), binary=False),
            parameters={"pause_ms": 3000},
            headers={"steelyard-timeout-ms": "300"},
        )
    assert problem.value.status() in ("503", "504")
