"""The discrete-event simulation: events, simulated replicas, results."""
