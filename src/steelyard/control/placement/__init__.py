"""Loads models where they are requested, and evicts those that are needed less."""
