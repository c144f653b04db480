"""The configuration: what a file may say, with safe defaults. One place; everything else is handed its part."""

from .flags import from_replicas, overridden
from .load import load_config, load_tree, parse_config
from .parts import AccessLog, Ejection, Health, Hedge, Limits, ReplicaTls, Retry, Slo, Timeouts, Tls
from .rules import problems
from .schema import schema
from .shape import ANY, Config, Device, ModelConfig, ReplicaConfig

__all__ = [
    "ANY",
    "AccessLog",
    "Config",
    "Device",
    "Ejection",
    "Health",
    "Hedge",
    "Limits",
    "ModelConfig",
    "ReplicaConfig",
    "ReplicaTls",
    "Retry",
    "Slo",
    "Timeouts",
    "Tls",
    "from_replicas",
    "load_config",
    "load_tree",
    "overridden",
    "parse_config",
    "problems",
    "schema",
]
