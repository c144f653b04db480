"""The scenarios of text-generating engines, W6 and W7.

A load is a share of what the engines serve with the `expected_hits`.
"""

from __future__ import annotations

from ...documents import Seconds
from ..peers import PEERS
from .conversations import Conversations, SharedPrompts, TokenCount
from .schema import ReplicaGroup, Scenario, Trace, Workload

EQUAL_ENGINES = (ReplicaGroup(count=8, engine="8b-h100"),)
UNEVEN_ENGINES = (ReplicaGroup(count=4, engine="8b-h100"), ReplicaGroup(count=4, engine="8b-a100"))
ENGINE_FLEETS = {"8 equal": EQUAL_ENGINES, "4 H100 + 4 A100": UNEVEN_ENGINES}
ENGINE_LOADS = (0.5, 0.7, 0.85, 0.95)
ENGINE_POLICIES = (
    "round_robin",
    "least_connections",
    "consistent_hash",
    "least_work@unlimited",
    "least_work@auto",
    "prefix_work",
    *PEERS,
)

CONVERSATIONS = Conversations(
    turns=5.0,
    think=Seconds(20.0),
    shared=SharedPrompts(tokens=256),
    prompt=TokenCount(mean=4000, cv=2.0),
    text=TokenCount(mean=400, cv=1.5),
    output=TokenCount(mean=300, cv=1.2),
    max_context=65_536,
)
TOOLS = Conversations(
    turns=8.0,
    think=Seconds(2.0),
    shared=SharedPrompts(count=8, tokens=4000),
    prompt=TokenCount(mean=600),
    text=TokenCount(mean=500, cv=1.5),
    output=TokenCount(mean=120),
)
CODE = Conversations(
    turns=1.5,
    think=Seconds(20.0),
    prompt=TokenCount(mean=9000, cv=1.2),
    text=TokenCount(mean=600, cv=1.5),
    output=TokenCount(mean=200, cv=1.2),
    max_context=65_536,
)
CHAT = Conversations(prompt=TokenCount(mean=300, cv=1.5), output=TokenCount(mean=250))
# With the requests of a run, and about the cache hits that good policies find: 95 % is near what can be served at all.
MIXES = {
    "conversations": (CONVERSATIONS, 6_000, 0.55),
    "tools": (TOOLS, 8_000, 0.85),
    "code": (CODE, 5_000, 0.1),
    "chat": (CHAT, 12_000, 0.0),
}


def w6() -> list[Scenario]:
    """text from batching engines: conversations, tools, code, chat"""
    return [
        Scenario(
            name=f"W6 {title}, {fleet_name}",
            requests=requests,
            loads=ENGINE_LOADS,
            warmup=0.2,  # the caches are empty at first
            fleet=fleet,
            workload=Workload(conversations=mix, expected_hits=hits),
            policies=ENGINE_POLICIES,
        )
        for title, (mix, requests, hits) in MIXES.items()
        for fleet_name, fleet in ENGINE_FLEETS.items()
    ]


def w7() -> list[Scenario]:
    """recorded prompts on batching engines: chat of Azure, long contexts of Mooncake"""
    return [
        Scenario(
            name=f"W7 {title}, {fleet_name}",
            requests=10_000,
            loads=ENGINE_LOADS,
            warmup=0.2,
            fleet=fleet,
            workload=Workload(trace=Trace(file=file)),
            policies=ENGINE_POLICIES,
        )
        for title, file in (("Azure trace", "builtin:azure"), ("Mooncake trace", "builtin:mooncake"))
        for fleet_name, fleet in ENGINE_FLEETS.items()
    ]
