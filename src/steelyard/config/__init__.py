"""The configuration: what a file may say, with safe defaults. All other code is handed its part."""

from .json_schema import schema
from .load import check_tree, load_config, parse_config, tree_of
from .overrides import from_replicas, with_overrides
from .rules.gateway import find_problems
from .rules.model import replica_problems
from .secret_files import read_tokens
from .sections.base import AccessLogConfig, LimitsConfig, ReplicaTlsConfig, TimeoutsConfig, TlsConfig
from .sections.discovery import DiscoveryConfig, DiscoverySection
from .sections.health import (
    AdminConfig,
    HealthConfig,
    InferenceProbe,
    LoadMetricsConfig,
    SyntheticRequest,
    WarmUpRequest,
)
from .sections.memory import DeviceConfig, MemoryConfig, PlacementConfig
from .sections.observability import DecisionLogConfig, SloConfig, TenantSloConfig, TracingConfig
from .sections.root import ANY_MODEL, Config, ModelConfig, ReplicaConfig
from .sections.runtime import RuntimeConfig, RuntimeSection
from .sections.scaling import AutoscaleConfig, SchedulePeriod

__all__ = [
    "ANY_MODEL",
    "AccessLogConfig",
    "AdminConfig",
    "AutoscaleConfig",
    "Config",
    "DecisionLogConfig",
    "DeviceConfig",
    "DiscoveryConfig",
    "DiscoverySection",
    "HealthConfig",
    "InferenceProbe",
    "LimitsConfig",
    "LoadMetricsConfig",
    "MemoryConfig",
    "ModelConfig",
    "PlacementConfig",
    "ReplicaConfig",
    "ReplicaTlsConfig",
    "RuntimeConfig",
    "RuntimeSection",
    "SchedulePeriod",
    "SloConfig",
    "SyntheticRequest",
    "TenantSloConfig",
    "TimeoutsConfig",
    "TlsConfig",
    "TracingConfig",
    "WarmUpRequest",
    "check_tree",
    "find_problems",
    "from_replicas",
    "load_config",
    "parse_config",
    "read_tokens",
    "replica_problems",
    "schema",
    "tree_of",
    "with_overrides",
]
