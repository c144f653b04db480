"""What a worker that died had in hand: its clients saw a connection break, and nobody else will ever count that."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...core.slo.verdicts import OTHER_TENANTS
from ...link.load_board import LoadBoard
from ...link.messages import ModelReport, WorkerReport
from ..fleet.board_columns import ColumnTable

LostRequests = Mapping[str, int]  # model → requests
NO_LOST_REQUESTS: LostRequests = MappingProxyType({})


def lost_requests(report: WorkerReport | None, board: LoadBoard, worker: int, slots: ColumnTable) -> LostRequests:
    """The board is written with each request and so has what there was in the last moment. Who is alone writes none:
    of that one there is only what it said last, about a second ago."""
    if board.workers > 1:
        found = {model: board.load(worker, columns.values()) for model, columns in slots.items()}
    else:
        found = {each.model: each.in_flight + each.waiting for each in report.models} if report is not None else {}
    return {model: count for model, count in found.items() if count > 0}


def only_tenant(reports: list[ModelReport]) -> str:
    """The tenant whose requests they were: known only where there is no other."""
    tenants = {tenant for report in reports for tenant in report.slo_verdicts}
    return OTHER_TENANTS if len(tenants) > 1 else next(iter(tenants), "")


def show_requests(requests: int) -> str:
    return f"{requests} request{'' if requests == 1 else 's'}"
