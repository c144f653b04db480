"""Simulated fleets whose size a scaler decides."""
