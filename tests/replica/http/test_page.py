"""docs/replica-agent.md says what the code does: its options with their defaults, its paths, its metrics."""

from __future__ import annotations

import inspect
import re

from steelyard.replica import ReplicaAgent
from steelyard.replica.http.endpoints import AGENT_PATHS

from ...docs.test_docs import rows, section, text_of
from ..talking import ask, run
from ..test_middleware import hello

PAGE = "docs/replica-agent.md"


def test_every_option_is_explained_with_its_default() -> None:
    documented = {row[0].strip("`"): row[1].strip("`") for row in rows(section(PAGE, "## Every option"))[1:]}
    given = inspect.signature(ReplicaAgent).parameters
    defaults = {
        name: "required" if one.default is one.empty else "–" if one.default is None else repr(one.default)
        for name, one in given.items()
    }
    assert documented == defaults


def test_every_path_and_metric_is_explained() -> None:
    async def story() -> None:
        agent = ReplicaAgent("m", gateway=(), concurrency=1)
        app = agent.wrap(hello)
        await ask(app)
        agent.ready()  # only then is something to be known of its base
        text = (await ask(app, "/steelyard/metrics", "GET")).body.decode()
        names = {re.split("[ {]", line)[0] for line in text.splitlines() if not line.startswith("#")}
        documented = [row[0].strip("`") for row in rows(section(PAGE, "## What it does"))]
        assert [path for path in documented if path.startswith("/")] == list(AGENT_PATHS)
        assert {name for name in documented if "_" in name} == names | {
            "steelyard_memory_peak_bytes"
        }  # which needs torch

    run(story())


def test_what_is_on_the_agent_is_named() -> None:
    surface = {"ready", "loading", "drain", "run", "middleware", "wrap", "state", "running", "waiting", "instance"}
    surface |= {"measuring", "add_model"}
    assert surface <= set(dir(ReplicaAgent))
    for name in surface:
        assert re.search(rf"`{name}\b", text_of(PAGE)), name
