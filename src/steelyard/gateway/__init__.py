"""Carries bytes between clients and replicas: one worker process. It makes no decisions; `core.Balancer` does."""
