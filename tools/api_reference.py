"""The API reference: which names it has, and what is missing from the page that mkdocstrings makes of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pkgutil import resolve_name
from types import FunctionType

PUBLIC: dict[str, tuple[str, ...]] = {
    "The library": (
        "steelyard.LoadBalancer",
        "steelyard.Target",
        "steelyard.Refused",
        "steelyard.default_failures",
        "steelyard.integrations.httpx.Transport",
        "steelyard.integrations.httpx.AsyncTransport",
    ),
    "Events and numbers": (
        "steelyard.BalancerEvent",
        "steelyard.EventKind",
        "steelyard.Stats",
        "steelyard.ReplicaStats",
    ),
    "The balancer": ("steelyard.Balancer", "steelyard.Request", "steelyard.Attempt", "steelyard.Replica"),
    "Decisions": ("steelyard.Send", "steelyard.Wait", "steelyard.Reject", "steelyard.Cancel", "steelyard.Reason"),
    "Outcomes and states": ("steelyard.Outcome", "steelyard.State", "steelyard.Event"),
    "Options": (
        "steelyard.PoolOptions",
        "steelyard.OutlierDetectionOptions",
        "steelyard.RetryOptions",
        "steelyard.HedgeOptions",
    ),
    "Errors": (
        "steelyard.SteelyardError",
        "steelyard.OptionError",
        "steelyard.MisuseError",
        "steelyard.UnknownModelError",
        "steelyard.UnknownReplicaError",
        "steelyard.IllegalTransitionError",
    ),
    "Your own policy": (
        "steelyard.Policy",
        "steelyard.testing.PolicyConformance",
        "steelyard.testing.check_policy",
    ),
    "Your own scaler": (
        "steelyard.core.scalers.Scaler",
        "steelyard.core.scalers.ScalingMetrics",
        "steelyard.core.scalers.Recommendation",
    ),
    "Your own dialect": (
        "steelyard.protocols.Dialect",
        "steelyard.protocols.ApiCall",
        "steelyard.protocols.BodyInfo",
        "steelyard.protocols.LocalReply",
        "steelyard.protocols.ServedModel",
        "steelyard.protocols.ProbePlan",
        "steelyard.protocols.ServerRequest",
        "steelyard.protocols.ServerReadiness",
        "steelyard.protocols.MetricsLocation",
    ),
    "Your own discovery source": (
        "steelyard.config.DiscoverySection",
        "steelyard.control.discovery.Source",
        "steelyard.control.discovery.DiscoveryResult",
        "steelyard.control.discovery.DiscoveryError",
    ),
    "Your own runtime": (
        "steelyard.config.RuntimeSection",
        "steelyard.runtimes.Runtime",
        "steelyard.runtimes.ReplicaSpec",
        "steelyard.runtimes.Instance",
        "steelyard.runtimes.InstancePhase",
        "steelyard.runtimes.ReplicaStartError",
    ),
    "The replica agent": ("steelyard.replica.ReplicaAgent",),
}
# Public to the rest of the package only.
INTERNAL = {
    "steelyard.Attempt": ("attained_at_dispatch", "hedge_entry", "reservation"),
    "steelyard.LoadBalancer": ("classify_failure", "new_request"),
    "steelyard.Request": (
        "avoid",
        "binding_deadline",
        "choice_trace",
        "deadline_bound",
        "expires",
        "memory",
        "pool",
        "queued_at",
        "version",
    ),
    "steelyard.integrations.httpx.AsyncTransport": ("http", "refused", "stream"),
    "steelyard.integrations.httpx.Transport": ("http", "refused", "stream"),
    "steelyard.replica.ReplicaAgent": ("begin", "end"),
}
# Of base classes that are not on the page.
INHERITED = {
    "steelyard.config.DiscoverySection": (
        "advice",
        "describe",
        "file_problems",
        "live_fields",
        "may_use_tls",
        "names_devices",
        "open",
        "path_fields",
        "problems",
    ),
    "steelyard.config.RuntimeSection": (
        "advice",
        "describe",
        "file_problems",
        "fingerprint",
        "has_replicas",
        "live_fields",
        "may_use_tls",
        "open",
        "path_fields",
        "problems",
    ),
}
HEADING = re.compile(r'<h[34] id="([^"]+)"')


def reference() -> str:
    """The page in Markdown."""
    parts = ["# Python API", "", "Made from docstrings. Import each name from the module in its heading.", ""]
    for heading, names in PUBLIC.items():
        parts += [f"## {heading}", "", *map(entry, names)]
    return "\n".join(parts)


def entry(name: str) -> str:
    options = []
    if name in INTERNAL:
        options.append(f'filters: ["!^_", "!^({"|".join(INTERNAL[name])})$"]')
    if name in INHERITED:
        options.append(f"inherited_members: [{', '.join(INHERITED[name])}]")
    lines = ["    options:", *(f"      {option}" for option in options)] if options else []
    return "\n".join([f"::: {name}", *lines, ""])


def problems(page: str) -> list[str]:
    """Of the page in HTML: what is missing, and what should not be there."""
    parts = HEADING.split(page)
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    found = [f"{name} is missing" for name in wanted() if name not in shown]
    found += [f"{name} is internal" for name in unwanted() if name in shown]
    for name in (name for names in PUBLIC.values() for name in names):
        text = re.sub(r"<[^>]+>", "", shown.get(name, ""))
        found += [f"{name}: the parameter {p} is missing" for p in parameters(name) if not re.search(rf"\b{p}\b", text)]
    return found


def wanted() -> Iterator[str]:
    for names in PUBLIC.values():
        for name in names:
            yield name
            thing = resolve_name(name)
            if isinstance(thing, type):
                own = {*vars(thing), *INHERITED.get(name, ())} - set(INTERNAL.get(name, ()))
                yield from sorted(f"{name}.{member}" for member in own if not member.startswith("_"))


def unwanted() -> Iterator[str]:
    for name, members in INTERNAL.items():
        yield from (f"{name}.{member}" for member in members)


def parameters(name: str) -> list[str]:
    """Of its constructor, where it has one of its own; those of a named tuple or a struct are its fields."""
    thing = resolve_name(name)
    made_by = getattr(thing, "__init__", None)
    if not isinstance(made_by, FunctionType) or issubclass(thing, Enum):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in inspect.signature(made_by).parameters.values() if p.kind not in kinds][1:]
