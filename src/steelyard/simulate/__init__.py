"""PROVES. A discrete-event driver of the same core.Balancer: workloads, traces, faults, reports."""
