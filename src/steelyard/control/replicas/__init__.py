"""Managed replicas: started, watched, replaced, drained and stopped, through a runtime."""
