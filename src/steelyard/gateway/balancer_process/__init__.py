"""The balancer process: decides for all workers of a gateway that has more than one."""
