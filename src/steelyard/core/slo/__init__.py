"""Service-level objectives: the verdict on each request, and burn rates over windows."""
