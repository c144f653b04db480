"""Access log, decision log, tracing, counters and reports."""
