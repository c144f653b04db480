"""What a worker tells the supervisor of itself, about once a second."""

from __future__ import annotations

from ..link.messages import ModelReport, ReplicaReport, Report
from .carrier import Carrier


def report(carrier: Carrier) -> Report:
    balancer = carrier.balancer
    models = []
    replicas = []
    for name in balancer.models:
        pool = balancer.pool(name)
        account = carrier.accounts[name]
        models.append(ModelReport(name, len(pool.line), pool.active, account.verdicts(), dict(account.buckets)))
        replicas += [
            ReplicaReport(name, r.id, r.state.value, r.in_flight, r.picks, r.failed, r.work, r.slowness)
            for r in pool.replicas.values()
        ]
    return Report(len(carrier.clients), tuple(models), tuple(replicas))
