"""Meters of device memory: NVML and cgroups."""
