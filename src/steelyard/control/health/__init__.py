"""Probes: does a replica live, is it ready, and what does it say of its load?"""
