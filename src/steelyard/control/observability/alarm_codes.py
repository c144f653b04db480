"""Every alarm there can be, by its stable code, and how urgent it is: `page` (look now) or `ticket` (look soon).

docs/admin.md says what each means and what to do; metrics show each of them, at 0 too.
"""

from __future__ import annotations

from typing import Final

PAGE: Final = "page"
TICKET: Final = "ticket"

SEVERITIES: Final = {
    "no_ready_replica": PAGE,
    "replica_failing": TICKET,
    "replica_not_ready": TICKET,
    "ejected_again": TICKET,
    "slo_page": PAGE,
    "slo_ticket": TICKET,
    "no_history": TICKET,
    "lines_lost": TICKET,
    "discovery": TICKET,
    "board_full": PAGE,
    "no_descriptors": PAGE,
    "memory_low": PAGE,
    "crash_loop": PAGE,
    "never_ready": PAGE,
    "max_reached": TICKET,
    "scaling_failed": TICKET,
    "no_room": TICKET,
    "still_runs": TICKET,
    "load_failed": TICKET,
    "load_timeout": TICKET,
    "unload_failed": TICKET,
    "models_unknown": TICKET,
    "memory_meter": TICKET,
    "memory_unknown": TICKET,
    "memory_over": TICKET,
    "memory_configured": TICKET,
    "memory_ran_out": TICKET,
    "memory_unmeasured": TICKET,
}


def severity(code: str) -> str:
    return SEVERITIES.get(code, TICKET)
