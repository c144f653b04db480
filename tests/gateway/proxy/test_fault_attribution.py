"""Whose fault a refusal is."""

from __future__ import annotations

import pytest

from steelyard.core.decision import Reject
from steelyard.core.reason import Reason
from steelyard.core.request import Request
from steelyard.gateway.http.local_replies import reject_reply


@pytest.mark.parametrize(("most", "fault"), [(1 << 20, "client"), (0, "gateway")])
def test_a_request_is_too_large_only_where_a_smaller_one_would_fit(most: int, fault: str) -> None:
    reject = Reject(Request("m"), Reason.TOO_LARGE, too_large=(1 << 30, most, "gpu0"))
    assert reject_reply(reject).fault == fault


def test_every_refusal_is_somebodys_fault() -> None:
    faults = {reject_reply(Reject(Request("m"), reason)).fault for reason in Reason}
    assert faults == {"client", "gateway", "replica", "overload"}
