"""Replicas found through DNS: addresses of a name, or SRV records."""
