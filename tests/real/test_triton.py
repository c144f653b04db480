"""`tritonclient.http`, unchanged, through the gateway to NVIDIA's Triton: JSON, binary tensors, compression."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.http.aio import InferenceServerClient as AsyncClient
from tritonclient.utils import InferenceServerException

from .conftest import Fleet
from .processes import Program
from .servers.tiny import CLASSES
from .tensors import check, inputs, needs_triton, outputs, tensors

pytestmark = [pytest.mark.xdist_group("real"), needs_triton]


def test_live_and_ready(triton_client: InferenceServerClient) -> None:
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready("scorer")
    assert triton_client.is_model_ready("scorer", "1")
    assert not triton_client.is_model_ready("no-such-model")


def test_the_server_and_the_model_describe_themselves(triton_client: InferenceServerClient) -> None:
    assert triton_client.get_server_metadata()["name"]
    metadata = triton_client.get_model_metadata("scorer")
    assert metadata["name"] == "scorer"
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["x", "bias"]
    assert triton_client.get_model_config("scorer")["backend"] == "python"
    assert triton_client.get_inference_statistics("scorer")["model_stats"][0]["name"] == "scorer"


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_infers_in_json_and_in_binary(triton_client: InferenceServerClient, binary_in: bool, binary_out: bool) -> None:
    x, bias = tensors(5, 64)
    wanted = outputs("probabilities", "labels", binary=binary_out)
    check(triton_client.infer("scorer", inputs(x, bias, binary_in), outputs=wanted), x, bias)


def test_one_input_binary_and_one_in_json(triton_client: InferenceServerClient) -> None:
    x, bias = tensors(3, 8)
    mixed = [inputs(x, bias, binary=True)[0], inputs(x, bias, binary=False)[1]]
    check(triton_client.infer("scorer", mixed), x, bias)


def test_tensors_of_sixteen_megabytes(triton_client: InferenceServerClient) -> None:
    x, bias = tensors(2048, 2048)
    check(triton_client.infer("scorer", inputs(x, bias)), x, bias)


@pytest.mark.parametrize("request_algorithm", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_algorithm", [None, "gzip", "deflate"])
def test_compressed(
    triton_client: InferenceServerClient, request_algorithm: str | None, response_algorithm: str | None
) -> None:
    x, bias = tensors(64, 300)
    result = triton_client.infer(
        "scorer",
        inputs(x, bias),
        request_compression_algorithm=request_algorithm,
        response_compression_algorithm=response_algorithm,
    )
    check(result, x, bias)


def test_by_version_with_an_id_and_parameters(triton_client: InferenceServerClient) -> None:
    x, bias = tensors(2, 4)
    result = triton_client.infer(
        "scorer", inputs(x, bias), model_version="1", request_id="seven", parameters={"pause_ms": 1}
    )
    check(result, x, bias)
    assert result.get_response()["id"] == "seven"


def test_many_at_once_are_spread_and_never_mixed(triton_client: InferenceServerClient, fleet: Fleet) -> None:
    given = [tensors(rows, 50) for rows in range(1, 41)]
    waiting = [triton_client.async_infer("scorer", inputs(*pair), parameters={"pause_ms": 10}) for pair in given]
    replicas = set()
    for handle, (x, bias) in zip(waiting, given, strict=True):
        result = handle.get_result()
        check(result, x, bias)
        replicas.add(result.as_numpy("replica")[0].decode())
    assert replicas == {replica.name for replica in fleet.scorer}


def test_the_async_client(gateway: Program) -> None:
    async def one(client: AsyncClient, x: np.ndarray, bias: np.ndarray) -> None:
        check(await client.infer("scorer", inputs(x, bias)), x, bias)

    async def all_of_them() -> None:
        async with AsyncClient(f"127.0.0.1:{gateway.port}") as client:
            assert await client.is_server_ready()
            await asyncio.gather(*(one(client, *tensors(rows, 30)) for rows in range(1, 31)))

    asyncio.run(all_of_them())


@pytest.mark.parametrize("binary", [True, False])
def test_an_unknown_model_is_told_in_tritons_words(triton_client: InferenceServerClient, binary: bool) -> None:
    with pytest.raises(InferenceServerException, match="No such model") as problem:
        triton_client.infer("no-such-model", inputs(*tensors(1, 4), binary=binary))
    assert problem.value.status() == "404"
    with pytest.raises(InferenceServerException):
        triton_client.get_model_metadata("no-such-model")


def test_the_servers_own_errors_come_back(triton_client: InferenceServerClient) -> None:
    x, _ = tensors(5, 4)
    with pytest.raises(InferenceServerException, match="bias has 3 rows and x has 5"):
        triton_client.infer("scorer", inputs(x, np.zeros((3, CLASSES), np.float32)))
    with pytest.raises(InferenceServerException, match="expected 2 inputs but got 1"):
        triton_client.infer("scorer", inputs(*tensors(1, 4))[:1])
    bias = np.zeros((1, CLASSES), np.float32)
    check(triton_client.infer("scorer", inputs(x, bias)), x, bias)


def test_a_client_that_times_out_leaves_nothing_behind(gateway: Program, triton_client: InferenceServerClient) -> None:
    x, bias = tensors(1, 4)
    with (
        InferenceServerClient(f"127.0.0.1:{gateway.port}", network_timeout=0.3) as hasty,
        pytest.raises(TimeoutError),
    ):
        hasty.infer("scorer", inputs(x, bias), parameters={"pause_ms": 1500})
    check(triton_client.infer("scorer", inputs(x, bias)), x, bias)
