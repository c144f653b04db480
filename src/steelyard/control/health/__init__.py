"""Health of replicas: active probes, readiness, restarts, and the load they report."""
