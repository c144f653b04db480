"""The configuration: what a file may say, with safe defaults. One place; everything else is handed its part."""

from .flags import from_replicas, overridden
from .load import Examined, examine, load_config, parse_config, tree_of
from .memory import Device, Memory, Placement
from .model_rules import replica_problems
from .observing import DecisionLog, History, Slo, TenantSlo, Tracing
from .parts import AccessLog, Ejection, Hedge, Limits, ReplicaTls, Retry, Timeouts, Tls
from .rules import problems
from .scaling import Autoscale, Period, Runtime
from .schema import schema
from .shape import ANY, Config, ModelConfig, ReplicaConfig
from .tokens import read_tokens
from .watching import Admin, Asking, Discovery, Health, Inference, Load, WarmUp

__all__ = [
    "ANY",
    "AccessLog",
    "Admin",
    "Asking",
    "Autoscale",
    "Config",
    "DecisionLog",
    "Device",
    "Discovery",
    "Ejection",
    "Examined",
    "Health",
    "Hedge",
    "History",
    "Inference",
    "Limits",
    "Load",
    "Memory",
    "ModelConfig",
    "Period",
    "Placement",
    "ReplicaConfig",
    "ReplicaTls",
    "Retry",
    "Runtime",
    "Slo",
    "TenantSlo",
    "Timeouts",
    "Tls",
    "Tracing",
    "WarmUp",
    "examine",
    "from_replicas",
    "load_config",
    "overridden",
    "parse_config",
    "problems",
    "read_tokens",
    "replica_problems",
    "schema",
    "tree_of",
]
