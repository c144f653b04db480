"""One balancer for all workers: what they and the balancer process say to each other, and the workers' end."""
