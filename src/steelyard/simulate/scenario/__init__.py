"""Scenarios: their YAML form, and the built-in catalog."""
