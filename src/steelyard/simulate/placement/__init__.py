"""Simulated servers that load and unload models."""
