"""Streams of simulated requests: random, or from traces."""
