"""The demo: three replicas of a small real model, the gateway in front of them, traffic, and a live table.

Nothing here is imitated: replicas are processes that compute, the gateway is the one `steelyard serve` runs.
"""
