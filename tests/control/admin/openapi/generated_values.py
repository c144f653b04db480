"""What schemathesis should know of our formats. It loads this by SCHEMATHESIS_HOOKS, in a process of its own."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import strategies as st

from steelyard.core.policies import POLICIES

MODELS = ("llama", "org/mœdel:7b.1")
DEVICES = ("node1/gpu0", "dark")
REPLICAS = ("a", "b", "pod/3", "127.0.0.1:9001", "started")

# Most of them exist, so that more is tried than what happens to be missing.
schemathesis.openapi.format("model", st.sampled_from(MODELS) | st.text(min_size=1, max_size=20))
schemathesis.openapi.format("replica", st.sampled_from(REPLICAS) | st.from_regex(r"\A[!-~]{1,9}\Z"))
schemathesis.openapi.format("device", st.sampled_from(DEVICES) | st.text(min_size=1, max_size=20))
schemathesis.openapi.format("device-or-none", st.sampled_from(("", *DEVICES)))
schemathesis.openapi.format("replica-url", st.integers(1024, 65535).map("http://127.0.0.1:{}".format))
schemathesis.openapi.format("path", st.from_regex(r"\A(/[a-z0-9._-]*[a-z])+(\?[!$-z]*)?\Z"))
schemathesis.openapi.format("policy", st.sampled_from(list(POLICIES)))


@schemathesis.hook
def filter_body(context: schemathesis.HookContext, body: Any) -> bool:
    """Which options there are depends on the policy, and the document cannot say so."""
    return not (isinstance(body, dict) and body.get("policy_options"))
