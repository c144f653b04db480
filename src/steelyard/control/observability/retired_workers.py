"""Workers that died: what they had counted, and the requests that were cut off with them.

Clients of those requests saw a broken connection, and nothing else will ever count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ...core.slo.verdicts import FAILED, GATEWAY, OTHER_TENANTS, VERDICT_COUNT, VERDICT_INDEX
from ...link.load_board import LoadBoard
from ...link.messages import ModelReport, ReplicaReport, WorkerReport
from ..fleet.board_columns import ColumnTable
from ..fleet.registry import ReplicaKey
from .totals import sum_counters, sum_counts, sum_lists

LostRequests = Mapping[str, int]  # model → requests
NO_LOST_REQUESTS: LostRequests = MappingProxyType({})
MAX_RETIRED_TENANTS = 100  # of a model, whose dead are counted one by one


class RetiredTotals:
    """What dead workers had counted, so that totals never go down."""

    def __init__(self) -> None:
        self.models: dict[str, ModelReport] = {}
        self.replicas: dict[ReplicaKey, ReplicaReport] = {}
        self.unrouted: dict[str, int] = {}  # requests, by verdict
        self.lost_telemetry: dict[str, int] = {}  # lines and spans, by what they are

    def retire(
        self, report: WorkerReport, lost: LostRequests = NO_LOST_REQUESTS, others: Iterable[WorkerReport] = ()
    ) -> None:
        """`lost`: the requests that were cut off with it; they count as failed by the gateway. `others`: the reports of
        living workers."""
        self.unrouted = sum_counts((self.unrouted, report.unrouted))
        self.lost_telemetry = sum_counts((self.lost_telemetry, report.dropped))
        unheard = lost.keys() - {model.model for model in report.models}
        for model in (*report.models, *(ModelReport(name, 0, 0, {}, {}) for name in sorted(unheard))):
            known = self.models.get(model.model)
            counted = [*([known] if known else []), model]
            if requests := lost.get(model.model):
                counted.append(
                    _failed_report(model.model, requests, only_tenant([*counted, *_reports_of(model.model, others)]))
                )
            self.models[model.model] = msgspec.structs.replace(
                model,
                waiting=0,
                in_flight=0,
                backlog=0.0,
                oldest_wait=0.0,
                **_fold_tenants(sum_counters(counted)),
            )
        for replica in report.replicas:
            before = self.replicas.get((replica.model, replica.id))
            self.replicas[replica.model, replica.id] = msgspec.structs.replace(
                replica,
                in_flight=0,
                work=0.0,
                dispatched=replica.dispatched + (before.dispatched if before else 0),
                failures=replica.failures + (before.failures if before else 0),
                ejections_total=replica.ejections_total + (before.ejections_total if before else 0),
                outcomes=sum_counts((replica.outcomes, before.outcomes if before else {})),
            )

    def prune(self, configured: Mapping[str, Iterable[str]]) -> None:
        """Forgets what is no longer configured: otherwise a fleet that changes for months grows without bound."""
        wanted = {(model, id) for model, ids in configured.items() for id in ids}
        self.models = {model: report for model, report in self.models.items() if model in configured}
        self.replicas = {key: report for key, report in self.replicas.items() if key in wanted}


def _reports_of(model: str, reports: Iterable[WorkerReport]) -> list[ModelReport]:
    return [each for report in reports for each in report.models if each.model == model]


def _failed_report(model: str, requests: int, tenant: str) -> ModelReport:
    """As a worker would have reported it."""
    judged = [0] * VERDICT_COUNT
    judged[VERDICT_INDEX[FAILED, GATEWAY]] = requests
    return ModelReport(model, 0, 0, {FAILED: requests}, {}, slo_verdicts={tenant: judged})


def _fold_tenants(counted: dict[str, Any]) -> dict[str, Any]:
    """Clients make up tenant names, and each worker counts its own set: the dead keep a limited number."""
    judged: dict[str, list[int]] = counted["slo_verdicts"]
    few = list(judged)[:MAX_RETIRED_TENANTS]
    return counted | {
        "slo_verdicts": sum_lists((name if name in few else OTHER_TENANTS, counts) for name, counts in judged.items())
    }


def lost_requests(report: WorkerReport | None, board: LoadBoard, worker: int, slots: ColumnTable) -> LostRequests:
    """From the load board, which is written with each request. A single worker writes none: for it, the last report,
    about a second old, must do."""
    if board.workers > 1:
        found = {model: board.load(worker, columns.values()) for model, columns in slots.items()}
    else:
        found = {each.model: each.in_flight + each.waiting for each in report.models} if report is not None else {}
    return {model: count for model, count in found.items() if count > 0}


def only_tenant(reports: list[ModelReport]) -> str:
    """The tenant of the lost requests, known only where there is just one."""
    tenants = {tenant for report in reports for tenant in report.slo_verdicts}
    return OTHER_TENANTS if len(tenants) > 1 else next(iter(tenants), "")


def show_requests(requests: int) -> str:
    return f"{requests} request{'' if requests == 1 else 's'}"
