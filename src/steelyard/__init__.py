"""Steelyard: the load balancer for model serving."""
