"""What probes see of replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...views import ReplicaView
from ..exposition import Family, Sample, labels


def probe_families(replicas: tuple[ReplicaView, ...], counts: Mapping[tuple[str, str], int]) -> Iterator[Family]:
    looks = [Sample(labels(model=model, verdict=verdict), n) for (model, verdict), n in sorted(counts.items())]
    yield Family("steelyard_probes_total", "counter", "looks at replicas, by what they saw", looks)
    probed = [(labels(model=view.model, replica=view.id), view.probe) for view in replicas if view.probe is not None]
    last = [Sample(f'{of},verdict="{probe.result}"', 1) for of, probe in probed]
    yield Family("steelyard_replica_probe_verdict", "gauge", "1, with what the last probe saw as a label", last)
    took = [Sample(of, probe.seconds if probe.age is not None else None) for of, probe in probed]
    yield Family("steelyard_replica_probe_seconds", "gauge", "how long the last probe took", took)
    restarts = [Sample(of, probe.restarts) for of, probe in probed]
    yield Family("steelyard_replica_restarts_total", "counter", "restarts of its server that were seen", restarts)
