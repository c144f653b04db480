"""Models of how other projects choose, for comparison on simulated engines: written from their published rules, not
their code, and no policies of Steelyard."""

PEERS: dict[str, str] = {
    "smg_cache_aware": "steelyard.simulate.peers.smg:SmgCacheAware",
    "llmd_default": "steelyard.simulate.peers.llmd:LlmdDefault",
    "dynamo_cost": "steelyard.simulate.peers.dynamo:DynamoCost",
}


def policy_target(name: str) -> str:
    """What `make_policy` takes for a policy of a scenario."""
    return PEERS.get(name, name)
