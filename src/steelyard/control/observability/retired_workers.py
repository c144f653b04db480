"""What dead workers had counted, and the requests lost with them, which nothing else counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ...core.slo.verdicts import FAILED, GATEWAY, OTHER_TENANTS, VERDICT_COUNT, VERDICT_INDEX
from ...link.messages import ModelReport, ReplicaReport, WorkerReport
from ..fleet.registry import ReplicaKey
from .totals import sum_counters, sum_counts, sum_lists, sum_replica_counters

LostRequests = Mapping[str, int]  # model → requests
NO_LOST_REQUESTS: LostRequests = MappingProxyType({})
MAX_RETIRED_TENANTS = 100  # of a model, counted one by one


class RetiredTotals:
    """Keeps counts of dead workers, so that totals never decrease."""

    def __init__(self) -> None:
        self.models: dict[str, ModelReport] = {}
        self.replicas: dict[ReplicaKey, ReplicaReport] = {}
        self.unrouted: dict[str, int] = {}  # requests, by outcome
        self.lost_telemetry: dict[str, int] = {}  # log lines and spans, by kind

    def retire(
        self, report: WorkerReport, lost: LostRequests = NO_LOST_REQUESTS, others: Iterable[WorkerReport] = ()
    ) -> None:
        """`lost` requests count as failed by the gateway. `others`: reports of living workers."""
        self.unrouted = sum_counts((self.unrouted, report.unrouted))
        self.lost_telemetry = sum_counts((self.lost_telemetry, report.dropped))
        unheard = lost.keys() - {model.model for model in report.models}
        for model in (*report.models, *(ModelReport(name, 0, 0, {}, {}) for name in sorted(unheard))):
            known = self.models.get(model.model)
            counted = [*([known] if known else []), model]
            if requests := lost.get(model.model):
                living = [each for other in others for each in other.models if each.model == model.model]
                counted.append(_failed_report(model.model, requests, only_tenant([*counted, *living])))
            counters = _fold_tenants(sum_counters(counted))
            self.models[model.model] = msgspec.structs.replace(
                model, waiting=0, in_flight=0, queued_work=0.0, oldest_wait=0.0, **counters
            )
        for replica in report.replicas:
            before = self.replicas.get((replica.model, replica.id))
            counters = sum_replica_counters([replica, *([before] if before else [])])
            self.replicas[replica.model, replica.id] = msgspec.structs.replace(
                replica, in_flight=0, work=0.0, **counters
            )

    def prune(self, configured: Mapping[str, Iterable[str]]) -> None:
        """Forgets what is no longer configured, so that a changing fleet does not grow without bound."""
        wanted = {(model, id) for model, ids in configured.items() for id in ids}
        self.models = {model: report for model, report in self.models.items() if model in configured}
        self.replicas = {key: report for key, report in self.replicas.items() if key in wanted}


def _failed_report(model: str, requests: int, tenant: str) -> ModelReport:
    judged = [0] * VERDICT_COUNT
    judged[VERDICT_INDEX[FAILED, GATEWAY]] = requests
    return ModelReport(model, 0, 0, {FAILED: requests}, {}, slo_verdicts={tenant: judged})


def _fold_tenants(counted: dict[str, Any]) -> dict[str, Any]:
    """Clients make up tenant names: the number kept is limited."""
    judged: dict[str, list[int]] = counted["slo_verdicts"]
    few = list(judged)[:MAX_RETIRED_TENANTS]
    return counted | {
        "slo_verdicts": sum_lists((name if name in few else OTHER_TENANTS, counts) for name, counts in judged.items())
    }


def lost_requests(report: WorkerReport | None) -> LostRequests:
    """Of a worker that decided itself, by its last report."""
    found = {each.model: each.in_flight + each.waiting for each in report.models} if report is not None else {}
    return {model: count for model, count in found.items() if count > 0}


def only_tenant(reports: list[ModelReport]) -> str:
    """The tenant of the lost requests, known only where there is just one."""
    tenants = {tenant for report in reports for tenant in report.slo_verdicts}
    return OTHER_TENANTS if len(tenants) > 1 else next(iter(tenants), "")


def show_requests(requests: int) -> str:
    return f"{requests} request{'' if requests == 1 else 's'}"
