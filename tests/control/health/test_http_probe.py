"""One look at one replica, over real sockets."""

from __future__ import annotations

import pytest

from steelyard.control.health.http_client import TlsContexts
from steelyard.control.health.http_probe import HttpProbe
from steelyard.control.health.probe import ProbeResult, ProbeStatus, ProbeTarget
from tests.control.driving import run

from .servers import Asked, Server, serving, target


async def look(aim: ProbeTarget) -> ProbeResult:
    return await http_probe(aim).run()


def http_probe(aim: ProbeTarget) -> HttpProbe:
    return HttpProbe(aim, TlsContexts())


@pytest.mark.parametrize(
    ("status", "kind", "sure"),
    [
        (200, ProbeStatus.READY, False),
        (204, ProbeStatus.READY, False),
        (503, ProbeStatus.LOADING, True),
        (500, ProbeStatus.LOADING, False),
        (404, ProbeStatus.LOADING, False),
        (301, ProbeStatus.LOADING, False),
    ],
)
def test_a_path_of_the_configuration(status: int, kind: ProbeStatus, sure: bool) -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers["/well?deep=1"] = status
            seen = await look(target(server.url, path="/well?deep=1", dialect="vllm"))
            assert (seen.status, seen.definitive) == (kind, sure)
            hint = ": is health.path right?" if status == 404 else ""
            assert seen.message == f"answers {status} to GET /well{hint}"
            assert seen.seconds > 0
            assert server.paths() == ["/well?deep=1"]

    run(scenario())


def test_a_path_of_the_replica_itself_goes_first() -> None:
    async def scenario() -> None:
        async with serving(own=200) as server:
            seen = await look(target(server.url, path="/model", ready="/own"))
            assert seen.status is ProbeStatus.READY
            assert server.paths() == ["/own"]

    run(scenario())


def test_headers_and_another_port() -> None:
    async def scenario() -> None:
        async with serving(ready=200) as server, serving() as own:
            aim = target(own.url, path="/ready", port=server.port, headers={"Authorization": "Bearer x", "Host": "y"})
            assert (await look(aim)).status is ProbeStatus.READY
            assert not own.asked
            (asked,) = server.asked
            assert asked.headers["authorization"] == "Bearer x"
            assert asked.headers["host"] == "y"
            assert asked.headers["connection"] == "close"

    run(scenario())


def test_a_header_that_would_be_two_is_not_sent() -> None:
    async def scenario() -> None:
        async with serving(ready=200) as server:
            seen = await look(target(server.url, path="/ready", headers={"x": "1\r\nevil: 1"}))
            assert seen.status is ProbeStatus.UNKNOWN
            assert not server.asked

    run(scenario())


def test_the_server_says_why() -> None:
    async def scenario() -> None:
        async with Running() as server:
            server.answers["/ready"] = server.reply(503, b'{"reason": "weights 3 of 8\\u0007"}')
            seen = await look(target(server.url, path="/ready"))
            assert seen.message == "answers 503 to GET /ready: weights 3 of 8\ufffd"

    run(scenario())


class Running(Server):
    async def __aenter__(self) -> Server:
        return await self.start()

    async def __aexit__(self, *problem: object) -> None:
        await self.stop()


def test_who_it_is() -> None:
    async def scenario() -> None:
        async with serving(ready=503) as server:
            server.instance = "abc"
            assert (await look(target(server.url, path="/ready"))).instance == "abc"

    run(scenario())


# ------------------------------------------------------------------ alive, if not ready?


def test_liveness_is_asked_only_where_it_is_not_ready() -> None:
    async def scenario() -> None:
        async with serving(ready=200, live=200) as server:
            aim = target(server.url, path="/ready", live_path="/live")
            assert (await look(aim)).status is ProbeStatus.READY
            assert server.paths() == ["/ready"]
            server.answers["/ready"] = 503
            assert (await look(aim)).status is ProbeStatus.LOADING
            assert server.paths() == ["/ready", "/ready", "/live"]
            server.answers["/live"] = 500
            seen = await look(aim)
            assert (seen.status, seen.definitive) == (ProbeStatus.BROKEN, True)
            assert "it is not alive" in seen.message

    run(scenario())


def test_one_that_answered_and_then_is_silent_is_not_ready() -> None:
    async def scenario() -> None:
        async with serving(ready=503) as server:

            def freeze(asked: Asked) -> bytes:
                server.frozen = True
                return server.reply(503)

            server.answers["/ready"] = freeze
            seen = await look(target(server.url, path="/ready", live_path="/live", timeout=1.5))
            assert (seen.status, seen.definitive) == (ProbeStatus.LOADING, True)

    run(scenario())


# ------------------------------------------------------------------ no answer


def test_no_answer() -> None:
    async def scenario() -> None:
        async with serving(ready=b"nonsense\r\n\r\n") as server:
            aim = target(server.url, path="/ready")
            seen = await look(aim)
            assert (seen.status, seen.definitive) == (ProbeStatus.BROKEN, False)
            assert seen.message == "its answer is not HTTP/1.1: GET /ready"
            server.frozen = True
            seen = await look(target(server.url, path="/ready", timeout=1.0))
            assert seen.status is ProbeStatus.NO_RESPONSE
            assert seen.message == "no answer in time (1 s): GET /ready"
        seen = await look(aim)
        assert seen.status is ProbeStatus.CONNECTION_REFUSED
        assert seen.message == "refuses connections"

    run(scenario())


def test_all_questions_of_a_look_share_one_time_limit() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:

            def freeze(asked: Asked) -> bytes:
                server.frozen = True
                return server.reply(200)

            server.answers["/health"] = freeze
            seen = await look(target(server.url, dialect="vllm", timeout=1.5))
            assert seen.status is ProbeStatus.NO_RESPONSE
            assert server.paths() == ["/health", "/v1/models"]

    run(scenario())


# ------------------------------------------------------------------ by dialect


def test_vllm_has_to_list_the_model_too() -> None:
    async def scenario() -> None:
        async with Running(health=200) as server:
            aim = target(server.url, dialect="vllm", model="llama")
            server.answers["/v1/models"] = server.reply(200, b'{"data": [{"id": "other"}]}')
            assert (await look(aim)).status is ProbeStatus.LOADING
            server.answers["/v1/models"] = server.reply(200, b'{"data": [{"id": "llama"}]}')
            assert (await look(aim)).status is ProbeStatus.READY
            server.answers["/health"] = 503
            assert (await look(aim)).status is not ProbeStatus.READY
            assert server.paths()[-1] == "/health"

    run(scenario())


def test_a_model_of_the_open_inference_protocol() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers["/v2/models/a%2Fb/ready"] = 200
            assert (await look(target(server.url, dialect="oip", model="a/b"))).status is ProbeStatus.READY
            assert (await look(target(server.url, dialect="oip", model="c"))).status in (
                ProbeStatus.NOT_FOUND,
                ProbeStatus.LOADING,
            )
            server.answers["/v2/health/ready"] = 200
            assert (await look(target(server.url, dialect="oip", model="*"))).status is ProbeStatus.READY

    run(scenario())


def test_what_servers_of_all_kinds_speak_says_nothing_of_a_readiness_path() -> None:
    async def scenario() -> None:
        async with serving() as server:
            for dialect in ("http", "openai"):
                seen = await look(target(server.url, dialect=dialect))
                assert seen.status is ProbeStatus.READY
                assert seen.message == "answers, but has no readiness path: set health.path"

    run(scenario())


def test_a_server_that_does_not_know_the_question_is_not_ready() -> None:
    async def scenario() -> None:
        async with serving() as server:
            for dialect, path in (("oip", "/v2/models/m/ready"), ("vllm", "/health"), ("bentoml", "/readyz")):
                seen = await look(target(server.url, dialect=dialect))
                assert seen.status is ProbeStatus.NOT_FOUND
                wrong = f"so it is no {dialect} server: set its dialect, or health.path"
                assert seen.message == f"misconfigured: answers 404 to GET {path}, {wrong}"

    run(scenario())


@pytest.mark.parametrize("dialect", ["http", "openai", "oip", ""])
def test_our_agent_knows_better_than_the_app(dialect: str) -> None:
    async def scenario() -> None:
        async with Running(health=200) as server:
            server.answers["/v2/models/m/ready"] = 200
            says = b'{"state": "draining", "instance": "i", "reason": "SIGTERM"}'
            server.answers["/steelyard/ready"] = server.reply(503, says)
            probe = http_probe(target(server.url, dialect=dialect))
            seen = await probe.run()
            assert (seen.status, seen.definitive) == (ProbeStatus.LOADING, True)
            assert seen.message == "answers 503 to GET /steelyard/ready: SIGTERM"
            server.answers["/steelyard/ready"] = server.reply(200, b'{"state": "ready", "instance": "i"}')
            server.asked.clear()
            assert (await probe.run()).status is ProbeStatus.READY
            assert server.paths() == ["/steelyard/ready"]

    run(scenario())


def test_a_server_that_answers_every_path_has_no_agent() -> None:
    async def scenario() -> None:
        for status in (200, 500, 503):
            async with serving(health=503) as server:
                server.answers["/steelyard/ready"] = status
                probe = http_probe(target(server.url, dialect="http"))
                assert (await probe.run()).message == "answers 503 to GET /health"
                server.asked.clear()
                await probe.run()
                assert server.paths() == ["/health"]

    run(scenario())


def test_what_cannot_have_our_agent_is_not_asked_for_it() -> None:
    async def scenario() -> None:
        async with serving() as server:
            for dialect in ("vllm", "sglang", "tgi", "triton"):
                await look(target(server.url, dialect=dialect))
            assert "/steelyard/ready" not in server.paths()

    run(scenario())


# ------------------------------------------------------------------ nobody said what it speaks

AGENT = b'{"state": "loading", "instance": "i"}'  # what our agent says; the others do not look into it


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/steelyard/ready", ["/steelyard/ready"]),
        ("/health", ["/steelyard/ready", "/-/healthz", "/health"]),
        ("/v2/models/m/ready", ["/steelyard/ready", "/-/healthz", "/health", "/v2/models/m/ready"]),
        ("/readyz", ["/steelyard/ready", "/-/healthz", "/health", "/v2/models/m/ready", "/v2/health/live", "/readyz"]),
    ],
)
def test_what_answers_is_found_and_remembered(path: str, asked: list[str]) -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers[path] = server.reply(503, AGENT)
            probe = http_probe(target(server.url, dialect=""))
            assert (await probe.run()).status is ProbeStatus.LOADING
            assert server.paths()[: len(asked)] == asked
            server.asked.clear()
            server.answers[path] = server.reply(200, AGENT)
            assert (await probe.run()).status is ProbeStatus.READY
            assert server.paths() == [path]

    run(scenario())


def test_every_way_is_tried_when_somebody_answers_again() -> None:
    async def scenario() -> None:
        async with serving(health=503) as server:
            probe = http_probe(target(server.url, dialect=""))
            await server.stop()
            for _ in range(4):
                assert (await probe.run()).status is ProbeStatus.CONNECTION_REFUSED
            await server.start()
            assert (await probe.run()).message == "answers 503 to GET /health"

    run(scenario())


def test_what_is_not_there_any_more_is_looked_for_again() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:
            probe = http_probe(target(server.url, dialect=""))
            assert (await probe.run()).status is ProbeStatus.READY
            server.answers = {"/v2/models/m/ready": 200}
            server.asked.clear()
            assert (await probe.run()).message == "answers 200 to GET /v2/models/m/ready"
            server.answers = {"/v2/models/m/ready": 200, "/steelyard/ready": server.reply(503, AGENT)}
            probe.reset()
            assert (await probe.run()).status is ProbeStatus.LOADING

    run(scenario())


@pytest.mark.parametrize("status", [404, 401, 403, 405, 307, 500, 422])
def test_where_nothing_is_found_any_answer_will_do(status: int) -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers = dict.fromkeys(("/steelyard/ready", "/health", "/v2/models/m/ready"), status)
            probe = http_probe(target(server.url, dialect=""))
            seen = await probe.run()
            assert seen.status is ProbeStatus.READY
            assert "set health.path" in seen.message
            server.asked.clear()
            await probe.run()
            assert len(server.asked) <= 2  # one of them a look (and the liveness that belongs to it)
            server.answers["/health"] = 503
            kinds = [(await probe.run()).status for _ in range(7)]
            assert kinds[-1] is ProbeStatus.LOADING  # found at last

    run(scenario())


@pytest.mark.parametrize("dialect", ["", "http"])
@pytest.mark.parametrize(
    ("path", "not_yet", "ready"),
    [
        ("/-/healthz", (503, b"Route table is not populated yet."), (200, b"success")),  # Ray Serve
        ("/readyz", (503, b""), (200, b"")),  # BentoML
        ("/ping", (500, b'{"status": "Unhealthy"}'), (200, b'{"status": "Healthy"}')),  # TorchServe
    ],
)
def test_the_readiness_of_named_servers_is_found(
    dialect: str, path: str, not_yet: tuple[int, bytes], ready: tuple[int, bytes]
) -> None:
    async def scenario() -> None:
        async with serving() as server:
            for other in ("/steelyard/ready", "/health", "/v2/models/m/ready", "/-/healthz"):
                server.answers[other] = 500  # an application on / fails at whatever is no request of its own
            probe = http_probe(target(server.url, dialect=dialect))
            server.answers[path] = server.reply(*not_yet)
            assert (await probe.run()).message.startswith(f"answers {not_yet[0]} to GET {path}")
            server.answers[path] = server.reply(*ready)
            seen = await probe.run()
            assert (seen.status, seen.message) == (ProbeStatus.READY, f"answers 200 to GET {path}")

    run(scenario())


def test_an_error_counts_where_the_path_was_found_before() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:
            probe = http_probe(target(server.url, dialect=""))
            assert (await probe.run()).status is ProbeStatus.READY
            server.answers["/health"] = 500
            assert (await probe.run()).status is ProbeStatus.LOADING

    run(scenario())


def test_vllm_says_which_models_it_has_instead() -> None:
    async def scenario() -> None:
        async with serving(health=200) as server:
            server.answers["/v1/models"] = server.reply(200, b'{"data": [{"id": "tiny"}]}')
            seen = await look(target(server.url, dialect="vllm", model="my-llama"))
            assert seen.status is ProbeStatus.LOADING
            assert "lists tiny, not my-llama: name the model as it does, or start it with --served" in seen.message

    run(scenario())


def test_torchserve_says_where_its_models_are_asked_for() -> None:
    async def scenario() -> None:
        async with serving() as server:
            seen = await look(target(server.url, dialect="torchserve"))
            assert "on port 8081: the management API is asked, by default on port 8081: set health.port" in seen.message
            assert seen.message.endswith("or health.path: /ping")

    run(scenario())


def test_who_may_not_ask_is_told_so() -> None:
    async def scenario() -> None:
        async with serving(health=401) as server:
            seen = await look(target(server.url, dialect="vllm"))
            assert seen.message == "answers 401 to GET /health: it wants credentials: set health.headers"

    run(scenario())


def test_a_unix_socket(tmp_path: pytest.TempPathFactory) -> None:
    async def scenario() -> None:
        async with serving(path=f"{tmp_path}/socket", health=200) as server:
            assert (await look(target(server.url, dialect=""))).status is ProbeStatus.READY
            assert server.asked[-1].headers["host"] == "localhost"

    run(scenario())
