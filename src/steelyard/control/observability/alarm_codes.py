"""All alarms by stable code, and their urgency: `page` (look now) or `ticket` (look soon). See docs/admin.md."""

from __future__ import annotations

from typing import Final

PAGE: Final = "page"
TICKET: Final = "ticket"

SEVERITIES: Final = {
    "no_ready_replica": PAGE,
    "balancer_unavailable": PAGE,
    "replica_failing": TICKET,
    "replica_not_ready": TICKET,
    "repeatedly_ejected": TICKET,
    "kv_cache_full": TICKET,
    "slo_page": PAGE,
    "slo_ticket": TICKET,
    "history_unavailable": TICKET,
    "telemetry_dropped": TICKET,
    "discovery_failed": TICKET,
    "shared_memory_full": PAGE,
    "file_descriptors_exhausted": PAGE,
    "memory_low": PAGE,
    "crash_loop": PAGE,
    "start_timeout": PAGE,
    "max_reached": TICKET,
    "scaling_failed": TICKET,
    "insufficient_memory": TICKET,
    "drain_timeout": TICKET,
    "load_failed": TICKET,
    "load_timeout": TICKET,
    "unload_failed": TICKET,
    "model_index_unavailable": TICKET,
    "memory_meter_failed": TICKET,
    "memory_unknown": TICKET,
    "memory_over_budget": TICKET,
    "memory_capacity_mismatch": TICKET,
    "out_of_memory": TICKET,
    "memory_unmeasured": TICKET,
}
