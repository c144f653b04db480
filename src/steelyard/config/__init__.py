"""The configuration: what a file may say, with safe defaults. One place; everything else is handed its part."""

from .flags import from_replicas, with_overrides
from .load import CheckedConfig, check_tree, load_config, parse_config, tree_of
from .memory import DeviceConfig, MemoryConfig, PlacementConfig
from .model_rules import replica_problems
from .observing import DecisionLogConfig, HistoryConfig, SloConfig, TenantSloConfig, TracingConfig
from .parts import (
    AccessLogConfig,
    EjectionConfig,
    HedgeConfig,
    LimitsConfig,
    ReplicaTlsConfig,
    RetryConfig,
    TimeoutsConfig,
    TlsConfig,
)
from .rules import list_problems
from .scaling import AutoscaleConfig, RuntimeConfig, SchedulePeriod
from .schema import schema
from .shape import ANY_MODEL, Config, ModelConfig, ReplicaConfig
from .tokens import read_tokens
from .watching import (
    AdminConfig,
    DiscoveryConfig,
    HealthConfig,
    InferenceProbe,
    LoadMetricsConfig,
    SyntheticRequest,
    WarmUpRequest,
)

__all__ = [
    "ANY_MODEL",
    "AccessLogConfig",
    "AdminConfig",
    "AutoscaleConfig",
    "CheckedConfig",
    "Config",
    "DecisionLogConfig",
    "DeviceConfig",
    "DiscoveryConfig",
    "EjectionConfig",
    "HealthConfig",
    "HedgeConfig",
    "HistoryConfig",
    "InferenceProbe",
    "LimitsConfig",
    "LoadMetricsConfig",
    "MemoryConfig",
    "ModelConfig",
    "PlacementConfig",
    "ReplicaConfig",
    "ReplicaTlsConfig",
    "RetryConfig",
    "RuntimeConfig",
    "SchedulePeriod",
    "SloConfig",
    "SyntheticRequest",
    "TenantSloConfig",
    "TimeoutsConfig",
    "TlsConfig",
    "TracingConfig",
    "WarmUpRequest",
    "check_tree",
    "from_replicas",
    "list_problems",
    "load_config",
    "parse_config",
    "read_tokens",
    "replica_problems",
    "schema",
    "tree_of",
    "with_overrides",
]
