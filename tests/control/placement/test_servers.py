"""The placer with servers of other kinds: TLS, a server that wants a token, and the demo of the agent as a process."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

from steelyard.config import parse_config
from steelyard.core.replica import Event
from tests.harness.certificates import Authority
from tests.replica.programs import demo, running

from ..driving import run
from .stage import MODEL_BYTES, READY, UNLOADED, Shelf, Stage, staged

A_M = ("m", "a")


def test_tls_and_headers_are_those_of_the_models_probes(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", "IP:127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def work() -> None:
        async with staged(a=Shelf("m")) as stage:
            shelf = stage.shelves["a"]
            await shelf.stop()
            await shelf.start(tls=context)
            settings = {
                "dialect": "triton",
                "placement": {},
                "replicas": [{"id": "a", "url": shelf.url.replace("http", "https"), "device": "gpu"}],
                "tls": {"ca": str(authority.ca)},
                "health": {"headers": {"authorization": "Bearer t0ken"}},
            }
            wanted = {"models": {"m": settings}, "devices": {"gpu": {"memory": "1GiB"}}}
            stage.members(parse_config(json.dumps(wanted)))
            await stage.known()
            stage.load("m", "a")
            await stage.until(lambda: stage.state(*A_M) == READY)
            assert {asked.headers["authorization"] for asked in shelf.asked} == {"Bearer t0ken"}
            assert {asked.headers["content-type"] for asked in shelf.asked} == {"application/json"}

    run(work())


def test_the_demo_of_the_agent(tmp_path: Path) -> None:
    program = demo(tmp_path, "--models", "m=1MiB,n=1MiB", "--load-seconds", "0.1")

    async def work() -> None:
        async with staged() as stage:
            await scene(stage)

    async def scene(stage: Stage) -> None:
        replicas = [{"id": "a", "url": program.url, "device": "gpu"}]
        agent = {"dialect": "oip", "placement": {"load_api": "agent"}, "replicas": replicas}
        wanted = {"models": {"m": agent, "n": agent, "x": agent}, "devices": {"gpu": {"memory": "1GiB"}}}
        stage.shelves = {"a": Shelf()}
        stage.shelves["a"].port = program.port
        stage.ledger.capacity = MODEL_BYTES
        stage.members(parse_config(json.dumps(wanted)))
        await stage.known()
        assert (stage.state("m", "a"), stage.state("n", "a")) == (UNLOADED, UNLOADED)
        stage.load("x", "a")
        await stage.until(stage.failures)
        (view,) = stage.placer.views().failures
        assert "answers 404: There is nothing at /steelyard/models/x/load" in view.message
        stage.load("m", "a")
        await stage.until(lambda: stage.state("m", "a") == READY)
        await stage.until(lambda: stage.ledger.weights)
        assert stage.ledger.weights["m", "a"] >= 1 << 20
        stage.load("n", "a", ("a", "m"))
        await stage.until(lambda: stage.state("n", "a") == READY)
        assert (stage.state("m", "a"), stage.ledger.reserved) == (UNLOADED, {("n", "a"): MODEL_BYTES})
        program.process.kill()
        await asyncio.to_thread(program.process.wait)
        program.start()
        stage.move(("n", "a"), Event.LOST)  # as probes see it
        await stage.until(lambda: stage.state("n", "a") == UNLOADED)

    with running(program):
        program.wait()
        run(work())
