"""Engines that generate text in batches, as vLLM does, and the traffic they get."""
